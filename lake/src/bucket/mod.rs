//! A lake in an object store: requests, and a copy of the lake in the cache folder, which DuckDB reads.
//!
//! Each object is there whole or not at all, and listings and reads see what was written before: S3, R2 and MinIO promise
//! both. That and three rules give readers what a folder gives them, without renaming and without locks in the store:
//!
//! - A part's file in `runs` is written last and deleted first. So while a part counts, its other files are there.
//! - A part is deleted only where each of its runs is in a greater merged part. Of two processes that merge at once each
//!   may delete what it takes for superseded, but never the greatest part, so no run is lost.
//! - Readers list twice, and take what is in either list. If a part is deleted before the first list comes to it, then the
//!   merged part with its runs was written before that, and is in the second list; or it was superseded itself by one
//!   that comes later by name, and so on. Listings go by name, so one of these is seen. So no run is missed, however many
//!   requests a list takes.
//!
//! `copy` has the readers' side.

mod client;
mod copy;

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::rows::{RUNS, TABLES};
use anyhow::{Context, Result, anyhow, bail, ensure};
use brickscope_analysis::receipt::sha256_hex;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::aws::AmazonS3Builder;
use object_store::path::Path as Key;
use object_store::{
    BackoffConfig, Error, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload, RetryConfig,
};
use tokio::runtime::Runtime;

use self::client::Connector;
use crate::Host;
use crate::part::{Part, Whose, machines_in};

/// Requests at once.
const AT_ONCE: usize = 16;

/// A place for lakes in an object store.
#[derive(Debug)]
pub(super) struct Bucket {
    url: String,
    bucket: String,
    prefix: Key,
    store: Arc<dyn ObjectStore>,
    /// The same for the first request, which soon says that no server answers.
    impatient: Arc<dyn ObjectStore>,
    runtime: Runtime,
    /// The copy's folder.
    copy: PathBuf,
    host: Host,
    /// Held while the copy is read.
    lock: Option<File>,
    /// Files in no run, as of the last refresh of all files.
    unknown: Vec<String>,
}

impl Bucket {
    /// Doesn't ask the store yet.
    pub(super) fn of_url(url: &str, host: &Host) -> Result<Self> {
        let url = url.trim_end_matches('/');
        let Some(rest) = url.strip_prefix("s3://") else {
            bail!("{url}: a lake is a folder or s3://BUCKET/PREFIX, of S3 or of a server like it");
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        ensure!(!bucket.is_empty(), "{url}: it names no bucket: s3://BUCKET/PREFIX");
        let prefix = Key::parse(prefix).map_err(|error| anyhow!("{url}: {error}"))?;
        // An error means that one is set.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
        let unusable = |error: Error| {
            let error = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            anyhow!("{url}: the environment's variables AWS_… can't be used: {error}")
        };
        let backoff = BackoffConfig { max_backoff: Duration::from_secs(2), ..Default::default() };
        let impatient = RetryConfig {
            backoff,
            retry_timeout: Duration::from_secs(10),
            ..RetryConfig::default()
        };
        let impatient = builder
            .clone()
            .with_http_connector(Connector { timeout: Duration::from_secs(10) })
            .with_retry(impatient)
            .build()
            .map_err(unusable)?;
        // A merged file may have many megabytes, over a slow line.
        let patient = Connector { timeout: Duration::from_secs(180) };
        let store = builder.with_http_connector(patient).build().map_err(unusable)?;
        let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]
            .iter()
            .find_map(|name| std::env::var(name).ok())
            .unwrap_or_default();
        let hash = sha256_hex(format!("{endpoint} {url}").as_bytes());
        Ok(Self {
            url: url.to_owned(),
            bucket: bucket.to_owned(),
            prefix,
            store: Arc::new(store),
            impatient: Arc::new(impatient),
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build()?,
            copy: (host.cache)()?.join("lakes").join(&hash[..16]),
            host: *host,
            lock: None,
            unknown: Vec::new(),
        })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn copy(&self) -> &Path {
        &self.copy
    }

    /// The object with this name in the lake.
    fn object(&self, name: &str) -> Key {
        name.split('/').fold(self.prefix.clone(), |key, name| key.join(name))
    }

    /// The name in the lake of an object.
    fn name_of(&self, object: &Key) -> Option<String> {
        let names: Vec<_> = object.prefix_match(&self.prefix)?.collect();
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        Some(names.join("/"))
    }

    /// Says what went wrong, as far as a person can act on it.
    fn failed(&self, name: &str, error: Error) -> anyhow::Error {
        let Self { url, bucket, .. } = self;
        let (is_refused, error): (bool, Box<dyn StdError + Send + Sync>) = match error {
            Error::Unauthenticated { source, .. } | Error::PermissionDenied { source, .. } => {
                (true, source)
            }
            Error::Generic { source, .. } | Error::NotFound { source, .. } => (false, source),
            other => (false, Box::new(other)),
        };
        // Its lines are meant for a debugger.
        let mut said = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        let mut cause = error.source();
        while let Some(next) = cause.and_then(StdError::source) {
            cause = Some(next);
        }
        if let Some(cause) = cause.map(ToString::to_string).filter(|cause| !said.contains(cause)) {
            said += &format!(": {cause}");
        }
        // The whole body of an answer would show what was signed, a session's token among it.
        if let Some(code) = between(&said, "<Code>", "</Code>") {
            let message = between(&said, "<Message>", "</Message>").unwrap_or_default();
            said = format!("{code} {message}").trim_end().to_owned();
        }
        if said.contains("NoSuchBucket") {
            return anyhow!("{url}: there is no bucket {bucket}");
        }
        let why = if is_refused {
            "the server refuses these credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
        } else if said.contains("/latest/api/token") || said.contains("/latest/meta-data") {
            // Without a key, the metadata service of a machine in the cloud is asked.
            "AWS_ACCESS_KEY_ID is not set, ~/.aws is not read, and this machine has no credentials of its own"
        } else if said.contains("URL scheme is not allowed") {
            "the server is asked without encryption only if AWS_ALLOW_HTTP=true"
        } else {
            "the request failed"
        };
        let slash = if name.is_empty() { "" } else { "/" };
        anyhow!("{url}{slash}{name}: {why}: {said}")
    }

    /// A small file, or `None` if there is none; an error comes within seconds.
    pub(super) fn first_read(&self, name: &str) -> Result<Option<String>> {
        let read = async {
            match self.impatient.get(&self.object(name)).await {
                Err(Error::NotFound { source, .. })
                    if !source.to_string().contains("NoSuchBucket") =>
                {
                    Ok(None)
                }
                got => Ok(Some(got?.bytes().await?)),
            }
        };
        match self.runtime.block_on(read).map_err(|error| self.failed(name, error))? {
            None => Ok(None),
            Some(bytes) => {
                let text = String::from_utf8(bytes.to_vec());
                text.map(Some).with_context(|| format!("{}/{name}", self.url))
            }
        }
    }

    /// The names of files and folders in the lake's place.
    pub(super) fn names(&self) -> Result<Vec<String>> {
        let listed = self.runtime.block_on(self.store.list_with_delimiter(Some(&self.prefix)));
        let listed = listed.map_err(|error| self.failed("", error))?;
        let files = listed.objects.iter().map(|object| &object.location);
        Ok(files.chain(&listed.common_prefixes).filter_map(|key| self.name_of(key)).collect())
    }

    /// Writes files, all at once.
    pub(super) fn put(&self, files: Vec<(String, Vec<u8>)>) -> Result<()> {
        let put = |(name, bytes): (String, Vec<u8>)| async move {
            let put = self.store.put(&self.object(&name), PutPayload::from(bytes)).await;
            put.map(drop).map_err(|error| self.failed(&name, error))
        };
        self.runtime
            .block_on(stream::iter(files).map(put).buffer_unordered(AT_ONCE).try_collect::<()>())
    }

    /// Writes a file that nobody has written yet; what another process wrote meanwhile stays.
    pub(super) fn put_new(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        let put = async {
            let (object, bytes) = (self.object(name), PutPayload::from(bytes));
            match self.store.put_opts(&object, bytes.clone(), PutMode::Create.into()).await {
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(()),
                // The answer of servers without it. What two processes write at once is the same.
                Err(error) if error.to_string().contains("NotImplemented") => {
                    self.store.put(&object, bytes).await.map(drop)
                }
                put => put.map(drop),
            }
        };
        self.runtime.block_on(put).map_err(|error| self.failed(name, error))
    }

    /// Whether there is a file.
    pub(super) fn has(&self, name: &str) -> Result<bool> {
        match self.runtime.block_on(self.store.head(&self.object(name))) {
            Err(Error::NotFound { .. }) => Ok(false),
            found => found.map(|_| true).map_err(|error| self.failed(name, error)),
        }
    }

    /// Deletes files, in any order.
    pub(super) fn delete(&self, names: Vec<String>) -> Result<()> {
        let objects: Vec<_> = names.iter().map(|name| Ok(self.object(name))).collect();
        let deleted = async {
            let mut deleted = self.store.delete_stream(stream::iter(objects).boxed());
            while let Some(deleted) = deleted.next().await {
                match deleted {
                    Err(Error::NotFound { .. }) => {}
                    deleted => drop(deleted?),
                }
            }
            Ok(())
        };
        self.runtime.block_on(deleted).map_err(|error| self.failed("", error))
    }

    /// Deletes the files in no run that are old enough. A run may be collected again, so each file is looked at right
    /// before it is deleted.
    pub(super) fn delete_orphans(&self, least_age: Duration) -> Result<u64> {
        let mut deleted = 0;
        for name in &self.unknown {
            // Its writer may have been slow, and whole meanwhile.
            let of = TABLES.iter().find_map(|table| Part::of_key(table, name));
            let abandoned_after =
                of.as_ref().map_or(least_age, |part| part.place.abandoned_after(least_age));
            let is_in_a_run = match of.map(|part| part.key(&RUNS)) {
                Some(run) => self.has(&run)?,
                None => false,
            };
            if is_in_a_run {
                continue;
            }
            match self.runtime.block_on(self.store.head(&self.object(name))) {
                Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(self.failed(name, error)),
                // By two clocks, but servers refuse requests of one that differs by more than a quarter of an hour.
                Ok(found) => {
                    let modified = SystemTime::from(found.last_modified);
                    let age = SystemTime::now().duration_since(modified).unwrap_or_default();
                    if age >= abandoned_after {
                        self.delete(vec![name.clone()])?;
                        deleted += 1;
                    }
                }
            }
        }
        Ok(deleted)
    }

    /// The runs of a day, each with its machine.
    pub(super) fn runs_of(&self, date: &str) -> Result<BTreeMap<String, String>> {
        let listed = self.list(RUNS.name, date, date)?;
        let parts = listed.iter().filter_map(|(name, _)| Part::of_key(&RUNS, name));
        let (mut many, single): (Vec<Part>, Vec<Part>) = parts.partition(Part::is_merged);
        let mut runs = BTreeMap::new();
        for part in single {
            if let Whose::Machine(machine) = part.place.whose {
                runs.insert(part.name, machine);
            }
        }
        // The last part counts.
        many.sort();
        let reading = stream::iter(many).map(|part| self.runs_in(part)).buffered(AT_ONCE);
        let read: Vec<Vec<_>> = self.runtime.block_on(reading.try_collect())?;
        runs.extend(read.into_iter().flatten());
        Ok(runs)
    }

    /// The runs in a merged part, each with its machine.
    async fn runs_in(&self, part: Part) -> Result<Vec<(String, String)>> {
        let name = part.key(&RUNS);
        // If it was merged once more meanwhile, its runs are added again, which changes nothing.
        let Some((bytes, _)) = self.get(&name).await? else { return Ok(Vec::new()) };
        machines_in(bytes).with_context(|| format!("{}/{name}", self.url))
    }

    /// A file and when it was written; `None` if there is none.
    async fn get(&self, name: &str) -> Result<Option<(bytes::Bytes, SystemTime)>> {
        let got = async {
            match self.store.get(&self.object(name)).await {
                Err(Error::NotFound { .. }) => Ok(None),
                got => {
                    let got = got?;
                    let modified = SystemTime::from(got.meta.last_modified);
                    Ok(Some((got.bytes().await?, modified)))
                }
            }
        };
        got.await.map_err(|error| self.failed(name, error))
    }

    /// The files of a table that were made on some days, by name.
    fn list(&self, table: &str, since: &str, until: &str) -> Result<Vec<(String, ObjectMeta)>> {
        let prefix = self.object(table);
        let from = self.object(&format!("{table}/date={since}"));
        let last = format!("{table}/date={until}0");
        let mut found = Vec::new();
        let listed = async {
            let mut listed = self.store.list_with_offset(Some(&prefix), &from);
            while let Some(object) = listed.try_next().await? {
                let Some(name) = self.name_of(&object.location) else { continue };
                // They come in this order, so the rest needn't be asked for.
                if name > last {
                    break;
                }
                found.push((name, object));
            }
            Ok(())
        };
        self.runtime.block_on(listed).map_err(|error| self.failed(table, error))?;
        Ok(found)
    }
}

fn between<'t>(text: &'t str, begin: &str, end: &str) -> Option<&'t str> {
    text.split_once(begin)?.1.split_once(end).map(|(within, _)| within)
}
