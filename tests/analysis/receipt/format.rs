//! The format is frozen: a file of it, its hash, its schema.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use brickscope_analysis::receipt::v1::{Device, DeviceTimes, NotFinite, VERSION_WITH_DEVICE};
use brickscope_analysis::receipt::{Code, Options, Receipt, SecretKey, sha256_hex, verify};
use serde_json::Value;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/receipt-v1.json")
}

#[test]
fn the_fixture_is_read_and_written_alike() {
    let text = std::fs::read_to_string(fixture()).expect("the fixture");
    let receipt = Receipt::load(&fixture()).expect("it is a receipt");
    assert_eq!(receipt.to_json(), text);
    assert_eq!(sha256_hex(text.as_bytes()), FILE);
    assert_eq!(receipt.canonical_sha256().expect("canonical"), CONTENT);
    assert_eq!(receipt.seal.as_ref().expect("sealed").sha256, CONTENT);

    let key = SecretKey::from_bytes(&[7; 32]);
    let options = Options { signed_by: Some(key.public_key()), ..Options::default() };
    let verdict = verify(text.as_bytes(), &options);
    assert!(verdict.is_accepted(), "{:#?}", verdict.refusals);
    assert_eq!(verdict.signed_by, [key.public_key()]);
    assert_eq!(
        verdict.doubts[..2],
        [
            "The control group's CPU limit stopped the process 4 times.",
            "The governor of the CPU's frequency is `powersave`."
        ]
    );
}

/// Of the file, and of its content in canonical JSON.
const FILE: &str = "1628286df1621be349755f9443dcc476ee72f3a74a35b942a66400df9b5f8597";
const CONTENT: &str = "e8fa04675f8fa60f7a044dbef13f768e2c347f895f1a9daba97c1022790b8108";

/// RFC 8785 by hand: fields sorted, no spaces, numbers as ECMAScript writes them.
#[test]
fn the_hash_is_of_canonical_json() {
    let mut value: Value =
        serde_json::to_value(Receipt::load(&fixture()).expect("the fixture")).expect("plain data");
    value.as_object_mut().expect("an object").remove("seal");
    let mut text = String::new();
    write(&value, &mut text);
    assert!(text.starts_with("{\"backend\":\"cpu\",\"binary\":{\"sha256\":\""), "{text}");
    assert_eq!(sha256_hex(text.as_bytes()), CONTENT);
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            out.push('{');
            let fields: BTreeSet<&String> = fields.keys().collect();
            for (i, name) in fields.into_iter().enumerate() {
                *out += if i > 0 { "," } else { "" };
                *out += &format!("{}:", Value::from(name.as_str()));
                write(&value[name], out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                *out += if i > 0 { "," } else { "" };
                write(item, out);
            }
            out.push(']');
        }
        // Between 10⁻⁶ and 10²¹ Rust and ECMAScript write alike.
        Value::Number(number) => *out += &number.as_f64().expect("a number").to_string(),
        other => *out += &other.to_string(),
    }
}

#[test]
fn what_is_no_receipt_is_said_with_file_field_and_byte() {
    let text = std::fs::read_to_string(fixture()).expect("the fixture");
    let error = |text: &str| {
        let error = Receipt::from_json(text, Path::new("r.json")).expect_err("it is none");
        error.to_string()
    };
    let wrong = text.replacen("\"wall_ns\":", "\"wall_ns\":-", 1);
    let said = error(&wrong);
    let at = wrong.find(":-").expect("it was put there");
    assert!(
        said.starts_with("r.json is not a receipt: tests[0].samples[0].wall_ns: invalid"),
        "{said}"
    );
    let byte = said.rsplit_once("(byte ").and_then(|(_, end)| end.strip_suffix(')'));
    let byte: usize = byte.and_then(|byte| byte.parse().ok()).expect("a number");
    assert!((at..at + 24).contains(&byte), "{at} {said}");
    let said = error(&text[..text.len() / 2]);
    assert!(said.starts_with("r.json is not a whole receipt: tests["), "{said}");
    // Of what is missing its own name is said, and not that of the field before it.
    for none in [
        "{}",
        "{\"compute_path\": \"real\"}",
        "{\"metrics\": {\"a\": 1},\n \"compute_path\": \"real\"}\n",
    ] {
        assert_eq!(error(none), "r.json is not a receipt: missing field `schema_version`");
    }
    let said = error("[]");
    assert!(said.contains("expected an object"), "{said}");
    // A mark before the text is of an editor, and counts as bytes.
    let marked = Receipt::from_json(&format!("\u{feff}{text}"), Path::new("r.json"));
    assert_eq!(marked.ok(), Receipt::load(&fixture()).ok());
    let byte_of = |text: &str| error(text).rsplit_once("(byte ").map(|(_, end)| end.to_owned());
    assert_eq!(byte_of("\u{feff}x").as_deref(), Some("3)"));
    let wall = text.find("\"wall_ns\":").expect("a field");
    let next = wall + text[wall..].find(',').expect("another field") + 1;
    let said = error(&format!("{}{}", &text[..wall], &text[next..]));
    let missing = "missing field `tests[0].samples[0].wall_ns`";
    assert_eq!(said, format!("r.json is not a receipt: {missing}"));
    let said = error("{\"schema_version\": \"0.9\"}");
    let reads = "this brickscope reads 1.0.0 and 1.1.0";
    assert_eq!(said, format!("r.json is a receipt of version `0.9`, but {reads}"));
    let said = Receipt::load(Path::new("no/such/file")).expect_err("it isn't there").to_string();
    assert!(said.starts_with("no/such/file: "), "{said}");
}

/// What a JSON Schema says of an object: its fields, and which must be there.
fn fields(schema: &Value) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let all = schema["properties"].as_object().expect("properties");
    let required = schema["required"].as_array().expect("required");
    (
        all.keys().map(String::as_str).collect(),
        required.iter().map(|name| name.as_str().expect("a name")).collect(),
    )
}

/// Holds a value to a schema, for the few words that ours uses; returns the fields that it has seen.
fn hold(root: &Value, schema: &Value, value: &Value, at: &str, seen: &mut BTreeSet<String>) {
    if let Some(target) = schema["$ref"].as_str() {
        seen.insert(target.to_owned());
        let target = root.pointer(target.trim_start_matches('#')).expect("it leads somewhere");
        return hold(root, target, value, at, seen);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        // Ours are `null` or something.
        let [null, other] = &choices[..] else { panic!("{at}: {choices:?}") };
        assert_eq!(null["type"], "null");
        if !value.is_null() {
            hold(root, other, value, at, seen);
        }
        return;
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
    };
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.clone(),
        kind => vec![kind.clone()],
    };
    assert!(kinds.iter().any(|allowed| allowed == kind), "{at}: {kind} is none of {kinds:?}");
    if let Some(constant) = schema.get("const") {
        assert_eq!(value, constant, "{at}");
    }
    if let (Some(most), Some(number)) = (schema["maximum"].as_u64(), value.as_u64()) {
        assert!(number <= most, "{at}");
    }
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| {
                hold(root, &schema["items"], item, &format!("{at}[{i}]"), seen);
            });
        }
        Value::Object(object) if schema.get("properties").is_some() => {
            assert_eq!(schema["additionalProperties"], false, "{at}");
            let (all, required) = fields(schema);
            let have: BTreeSet<&str> = object.keys().map(String::as_str).collect();
            assert!(have.is_subset(&all) && required.is_subset(&have), "{at}: {have:?}");
            const OPTIONAL: [&str; 6] =
                ["seal", "signatures", "memory_spread", "not_finite", "device", "device_bricks"];
            // Only a seal, its signatures, what earlier versions didn't write, and what only devices have may be left
            // out.
            let optional: Vec<&&str> = all.difference(&required).collect();
            assert!(optional.iter().all(|name| OPTIONAL.contains(*name)), "{optional:?}");
            assert_eq!(have, all, "{at}: the fixture has every field");
            for (name, value) in object {
                hold(root, &schema["properties"][name], value, &format!("{at}.{name}"), seen);
            }
        }
        Value::Object(object) => {
            for (name, value) in object {
                let schema = &schema["additionalProperties"];
                hold(root, schema, value, &format!("{at}.{name}"), seen);
            }
        }
        _ => {}
    }
}

#[test]
fn the_schema_in_the_docs_is_that_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/receipt-v1.schema.json");
    let text = std::fs::read_to_string(path).expect("the schema");
    let schema: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    // What the code writes has every field of the schema and no other …
    let mut receipt = Receipt::load(&fixture()).expect("the fixture");
    receipt.ceilings.as_mut().expect("it has some").memory_spread = Some([1e9, 2e9]);
    for test in &mut receipt.tests {
        let origin = "somewhere".to_owned();
        test.not_finite = Some(NotFinite { passes: 1, of: 1, origin });
        test.device_bricks = test.bricks.clone();
        for sample in &mut test.samples {
            sample.device = Some(DeviceTimes { brick_ns: vec![1], ..DeviceTimes::default() });
        }
    }
    receipt.schema_version = VERSION_WITH_DEVICE.to_owned();
    let (driver, memory_bytes) = (Some("CUDA 13.0".to_owned()), Some(80 << 30));
    let (name, api, resolution_ns) = ("NVIDIA H200".to_owned(), "cuda".to_owned(), Some(32.0));
    receipt.device = Some(Device { name, api, driver, memory_bytes, resolution_ns });
    let value = serde_json::to_value(&receipt).expect("plain data");
    let mut seen = BTreeSet::new();
    hold(&schema, &schema, &value, "receipt", &mut seen);
    let defined = schema["$defs"].as_object().expect("definitions").keys();
    let defined: BTreeSet<String> = defined.map(|name| format!("#/$defs/{name}")).collect();
    assert_eq!(seen, defined);
    // … and is read only with all that the schema requires, and with no other.
    let mut places = vec![(String::new(), String::new())];
    while let Some((pointer, target)) = places.pop() {
        let root = schema.pointer(&target).expect("it leads somewhere");
        let (all, required) = fields(root);
        for name in &required {
            let mut without = value.clone();
            let object = without.pointer_mut(&pointer).and_then(Value::as_object_mut);
            object.expect("an object").remove(*name);
            let verdict = verify(without.to_string().as_bytes(), &Options::default());
            assert_eq!(verdict.refusals[0].code, Code::Schema, "{pointer}/{name}");
        }
        let mut with = value.clone();
        with.pointer_mut(&pointer).expect("a place")["new"] = Value::Null;
        let verdict = verify(with.to_string().as_bytes(), &Options::default());
        assert_eq!(verdict.refusals[0].code, Code::Schema, "{pointer}/new");
        for name in all {
            let field = &root["properties"][name];
            let (inner, item) = match field.get("items") {
                Some(items) => (items, "/0"),
                None => (field, ""),
            };
            let inner = inner["anyOf"].get(1).unwrap_or(inner);
            if let Some(target) = inner["$ref"].as_str() {
                let target = target.trim_start_matches('#').to_owned();
                places.push((format!("{pointer}/{name}{item}"), target));
            }
        }
    }
}

#[test]
fn every_code_is_in_the_docs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/receipts.md");
    let text = std::fs::read_to_string(path).expect("the page");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let rows: BTreeSet<&str> = rows.filter(|row| !row.contains('_')).collect();
    for code in Code::ALL {
        assert!(rows.contains(code.name()), "{}", code.name());
        assert_eq!(serde_json::to_value(code).expect("a name"), code.name());
    }
}
