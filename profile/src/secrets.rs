//! Command lines without what they shouldn't tell: runs and receipts keep the command that made them, and are shown and shared.

/// Stands in the place of a secret.
pub const MASK: &str = "***";

/// A command line with [`MASK`] in the place of secrets, as far as they can be known: the values of options and variables
/// whose names say so (`--api-key X`, `--hf-token=X`, `DB_PASSWORD=X`), headers of authorisation, passwords and keys in
/// addresses, and tokens that begin as those of OpenAI, GitHub and Hugging Face do. A secret without any of that is kept.
///
/// ```
/// let words = ["llama-server", "--api-key", "abc", "-m", "m.gguf"].map(str::to_owned);
/// let told = brickscope_profile::secrets::without(words);
/// assert_eq!(told, ["llama-server", "--api-key", "***", "-m", "m.gguf"]);
/// ```
pub fn without(words: impl IntoIterator<Item = String>) -> Vec<String> {
    let (mut is_value, mut is_line) = (false, false);
    let told = words.into_iter().map(|word| {
        // An option without a value is followed by another one.
        if std::mem::take(&mut is_value) && !word.starts_with("--") {
            return MASK.to_owned();
        }
        // A line for a shell has words in it.
        if std::mem::replace(&mut is_line, word == "-c") && word.contains(' ') {
            return without(word.split(' ').map(str::to_owned)).join(" ");
        }
        let name = word.trim_start_matches('-');
        is_value = name.len() < word.len() && is_secret(name);
        of_word(word)
    });
    told.collect()
}

/// Whether a command line had a secret in it that was left out.
#[must_use]
pub fn are_left_out(words: &[String]) -> bool {
    let in_word = |word: &String| {
        [": ***", "=***", " ***"].iter().any(|end| word.ends_with(end))
            || [":***@", "//***@", "=***&", "=*** "].iter().any(|part| word.contains(part))
    };
    words.iter().any(|word| word == MASK || in_word(word))
}

fn of_word(word: String) -> String {
    if let Some((name, _)) = word.split_once('=')
        && (is_secret(name.trim_start_matches('-')) || is_key_variable(name))
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    {
        return format!("{name}={MASK}");
    }
    if let Some(told) = of_header(&word) {
        return told;
    }
    if is_token(word.rsplit('=').next().unwrap_or_default()) {
        let name = word.rsplit_once('=').map(|(name, _)| format!("{name}=")).unwrap_or_default();
        return name + MASK;
    }
    of_address(word)
}

/// `Authorization: Bearer X` without what follows the colon: at the begin of a word, or behind what isn't a letter or a space,
/// as in `--header=Authorization: X` and `{"Authorization": "X"}`.
fn of_header(word: &str) -> Option<String> {
    let lower = word.to_ascii_lowercase();
    for header in ["authorization", "x-api-key", "api-key", "cookie"] {
        for (at, _) in lower.match_indices(header) {
            let is_begin =
                !lower[..at].ends_with(|c: char| c.is_alphanumeric() || c == ' ' || c == '-');
            let rest = &lower[at + header.len()..];
            let colon =
                rest.find(':').filter(|&colon| matches!(rest[..colon].trim(), "" | "\"" | "'"));
            if let Some(colon) = colon.filter(|_| is_begin) {
                return Some(format!("{} {MASK}", &word[..at + header.len() + colon + 1]));
            }
        }
    }
    None
}

/// Whether a variable is a key, as `OPENAI_KEY` is.
fn is_key_variable(name: &str) -> bool {
    name.ends_with("_KEY")
        && name
            .bytes()
            .all(|byte| byte == b'_' || byte.is_ascii_uppercase() || byte.is_ascii_digit())
}

/// `https://user:password@host/?token=X` without the password and the token.
fn of_address(word: String) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let host = match host.rsplit_once('@') {
        Some((who, host)) => {
            let who =
                who.split_once(':').map_or(MASK.to_owned(), |(who, _)| format!("{who}:{MASK}"));
            format!("{who}@{host}")
        }
        None => host.to_owned(),
    };
    let (path, query) = path.split_once('?').unzip();
    let path = path.unwrap_or(&rest[end..]);
    let query = query.map(|query| {
        let parts = query.split('&').map(|part| match part.split_once('=') {
            Some((name, _))
                if is_secret(name)
                    || ["key", "sig"].contains(&name)
                    || name.contains("ignature") =>
            {
                format!("{name}={MASK}")
            }
            _ => part.to_owned(),
        });
        format!("?{}", parts.collect::<Vec<_>>().join("&"))
    });
    format!("{scheme}://{host}{path}{}", query.unwrap_or_default())
}

/// Whether the name of an option or of a variable says that its value is a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace(['-', '.'], "_");
    let last = name.rsplit('_').next().unwrap_or_default();
    let rest = name.strip_suffix(last).unwrap_or_default().trim_end_matches('_');
    match last {
        "apikey" | "pat" | "passwd" | "password" | "passphrase" | "pwd" | "secret" | "secrets"
        | "bearer" | "credential" | "credentials" | "hft" => true,
        // A tokenizer has tokens of other kinds.
        "token" => {
            let of_text =
                ["bos", "eos", "eot", "pad", "unk", "sep", "cls", "mask", "per", "special", "max"];
            !of_text.contains(&rest.rsplit('_').next().unwrap_or_default())
        }
        "key" => {
            let kinds =
                ["api", "access", "secret", "private", "auth", "account", "signing", "encryption"];
            kinds.contains(&rest.rsplit('_').next().unwrap_or_default())
        }
        // `accessToken`, `PGPASSWORD`.
        _ => {
            ["accesstoken", "authtoken", "apitoken", "password", "secretkey", "accesskey", "apikey"]
                .iter()
                .any(|end| last.ends_with(end))
        }
    }
}

/// Whether a word is a token of a service that gives them a beginning of their own.
fn is_token(word: &str) -> bool {
    /// Shorter words may be anything.
    const LEAST: usize = 20;
    let begins =
        ["sk-", "hf_", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "nvapi-"];
    word.len() >= LEAST
        && begins.iter().any(|begin| word.starts_with(begin))
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &[&str]) -> String {
        without(line.iter().map(|word| (*word).to_owned())).join(" ")
    }

    #[test]
    fn secrets_are_left_out() {
        for (line, expected) in [
            (
                &["llama-server", "--api-key", "abc", "-m", "x.gguf"][..],
                "llama-server --api-key *** -m x.gguf",
            ),
            (&["x", "--api-key=abc"], "x --api-key=***"),
            (&["llama-cli", "-hft", "abc", "-hf", "org/model"], "llama-cli -hft *** -hf org/model"),
            (&["x", "--hf-token", "abc"], "x --hf-token ***"),
            (
                &["env", "HF_TOKEN=abc", "AWS_SECRET_ACCESS_KEY=d/e+f=", "x"],
                "env HF_TOKEN=*** AWS_SECRET_ACCESS_KEY=*** x",
            ),
            (&["x", "--db.password", "-abc"], "x --db.password ***"),
            (&["curl", "-H", "Authorization: Bearer abc"], "curl -H Authorization: ***"),
            (&["curl", "--header=X-API-Key: abc"], "curl --header=X-API-Key: ***"),
            (&["x", "https://me:abc@host/path"], "x https://me:***@host/path"),
            (&["x", "--otlp=https://abc@host:4318"], "x --otlp=https://***@host:4318"),
            (
                &["x", "https://host/a?b=c&access_token=abc"],
                "x https://host/a?b=c&access_token=***",
            ),
            (&["x", "https://host/a?sv=1&sig=abc"], "x https://host/a?sv=1&sig=***"),
            (&["x", "--accessToken", "abc", "PGPASSWORD=x"], "x --accessToken *** PGPASSWORD=***"),
            (&["env", "OPENAI_KEY=x", "GITHUB_PAT=y"], "env OPENAI_KEY=*** GITHUB_PAT=***"),
            (&["x", "{\"Authorization\": \"Bearer abc\"}"], "x {\"Authorization\": ***"),
            (
                &["sh", "-c", "cd x && HF_TOKEN=abc ./run --api-key y"],
                "sh -c cd x && HF_TOKEN=*** ./run --api-key ***",
            ),
            (&["x", "sk-abcdefghijklmnopqrstu", "--k=hf_abcdefghijklmnopqrst"], "x *** --k=***"),
        ] {
            assert_eq!(told(line), expected);
            assert!(are_left_out(&without(line.iter().map(|word| (*word).to_owned()))), "{line:?}");
        }
    }

    #[test]
    fn what_is_none_stays() {
        for line in [
            &["llama-bench", "-m", "x.gguf", "-ctk", "q8_0", "-p", "128"][..],
            &[
                "vllm",
                "serve",
                "--max-num-batched-tokens",
                "8192",
                "--eos-token",
                "</s>",
                "--tokenizer",
                "a/b",
            ],
            &["x", "--api-key-file", "keys", "--tokens=64", "--key", "value", "hf_model"],
            &["x", "s3://bucket/prefix", "http://host:80/a?b=c#d", "--prompt", "the secret = none"],
            &["x", "-p", "What is a password=?", "--api-key", "--port", "80"],
            &["", "=", "--", "://"],
            &["x", "-p", "Explain the Cookie: header, in ***bold***", "-c", "4096"],
        ] {
            assert_eq!(told(line), line.join(" "));
            assert!(!are_left_out(&line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()));
        }
    }
}
