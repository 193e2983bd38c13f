//! A server of S3 in this process, with objects in memory. The crate s3s reads requests, verifies their signatures, and
//! writes answers. Like S3, it changes objects one at a time and as a whole, lists them by name, and sees in a listing
//! what was written before; and it can be told to answer in short pages, to be overloaded, or to let something happen
//! right after a listing.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::dto::{
    CommonPrefix, DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput,
    DeletedObject, ETag, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput,
    ListObjectsV2Input, ListObjectsV2Output, Object, PutObjectInput, PutObjectOutput,
    StreamingBlob,
};
use s3s::service::S3ServiceBuilder;
use s3s::{Body, S3, S3Request, S3Response, S3Result, s3_error};

/// The one bucket.
pub const BUCKET: &str = "runs";
const KEY: &str = "AKIDTEST";
const SECRET: &str = "not a secret";

/// The numbers of requests since they were last taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Requests {
    pub get: u64,
    pub head: u64,
    pub put: u64,
    pub list: u64,
    pub delete: u64,
}

#[derive(Clone)]
struct Stored {
    bytes: Vec<u8>,
    at: SystemTime,
}

type Then = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    objects: Mutex<BTreeMap<String, Stored>>,
    requests: Mutex<Requests>,
    count: AtomicU64,
    /// Every so many requests are refused for overload; 0 for none.
    overloaded: AtomicU64,
    /// Keys of a page of a listing; 0 for as many as S3 has.
    page: AtomicU64,
    /// Whether each page of a listing says that it goes on after its first object.
    repeats: AtomicBool,
    /// Runs after the next listing of `runs`, before it is answered.
    then: Mutex<Option<Then>>,
}

/// A server, on a port of its own, until the process ends.
#[derive(Clone)]
pub struct Server {
    state: Arc<State>,
    port: u16,
}

impl Server {
    pub fn start() -> Self {
        let state = Arc::<State>::default();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        listener.set_nonblocking(true).expect("a socket");
        let mut service = S3ServiceBuilder::new(Store(state.clone()));
        service.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let service = service.build();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
            runtime.expect("threads").block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
                while let Ok((socket, _)) = listener.accept().await {
                    let service = service.clone();
                    tokio::spawn(async move {
                        let server = Builder::new(TokioExecutor::new());
                        // A client that is killed closes its connections.
                        let _ = server.serve_connection(TokioIo::new(socket), service).await;
                    });
                }
            });
        });
        Self { state, port }
    }

    /// Tells a command where the server is, and its credentials.
    pub fn tell(&self, command: &mut Command) {
        command
            .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port))
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_ACCESS_KEY_ID", KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_REGION", "us-east-1");
    }

    /// Requests since this was last called.
    pub fn requests(&self) -> Requests {
        std::mem::take(&mut *locked(&self.state.requests))
    }

    /// Refuses one in so many requests as an overloaded server does; 0 for none.
    pub fn overload(&self, one_in: u64) {
        self.state.overloaded.store(one_in, Ordering::SeqCst);
    }

    /// Lists so many objects a page.
    pub fn page(&self, keys: u64) {
        self.state.page.store(keys, Ordering::SeqCst);
    }

    /// Lists without an end: each page goes on where it began.
    pub fn repeat(&self, repeats: bool) {
        self.state.repeats.store(repeats, Ordering::SeqCst);
    }

    /// Does something after the next listing of `runs`, before it is answered.
    pub fn after_listing(&self, then: impl FnOnce() + Send + 'static) {
        *locked(&self.state.then) = Some(Box::new(then));
    }

    /// The names of all objects.
    pub fn names(&self) -> Vec<String> {
        locked(&self.state.objects).keys().cloned().collect()
    }

    /// Writes an object, or removes it.
    pub fn set(&self, name: &str, bytes: Option<&[u8]>, at: SystemTime) {
        let mut objects = locked(&self.state.objects);
        match bytes {
            Some(bytes) => {
                drop(objects.insert(name.to_owned(), Stored { bytes: bytes.to_vec(), at }))
            }
            None => drop(objects.remove(name)),
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Store(Arc<State>);

impl Store {
    /// Counts a request, and refuses it or not.
    fn admit(&self, bucket: &str, count: impl FnOnce(&mut Requests)) -> S3Result<()> {
        count(&mut locked(&self.0.requests));
        let nth = self.0.count.fetch_add(1, Ordering::SeqCst) + 1;
        let one_in = self.0.overloaded.load(Ordering::SeqCst);
        if one_in > 0 && nth.is_multiple_of(one_in) {
            return Err(s3_error!(SlowDown));
        }
        if bucket == BUCKET { Ok(()) } else { Err(s3_error!(NoSuchBucket)) }
    }

    fn find(&self, key: &str) -> S3Result<Stored> {
        locked(&self.0.objects).get(key).cloned().ok_or_else(|| s3_error!(NoSuchKey))
    }
}

fn etag(stored: &Stored) -> ETag {
    // Not a hash of the bytes; nobody takes it for one.
    ETag::Strong(format!(
        "{:x}",
        stored.bytes.iter().fold(7_u64, |hash, &b| hash.wrapping_mul(31) + u64::from(b))
    ))
}

#[async_trait::async_trait]
impl S3 for Store {
    async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let input = request.input;
        self.admit(&input.bucket, |requests| requests.get += 1)?;
        let stored = self.find(&input.key)?;
        Ok(S3Response::new(GetObjectOutput {
            content_length: Some(stored.bytes.len() as i64),
            e_tag: Some(etag(&stored)),
            last_modified: Some(stored.at.into()),
            body: Some(StreamingBlob::from(Body::from(stored.bytes))),
            ..GetObjectOutput::default()
        }))
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let input = request.input;
        self.admit(&input.bucket, |requests| requests.head += 1)?;
        let stored = self.find(&input.key)?;
        Ok(S3Response::new(HeadObjectOutput {
            content_length: Some(stored.bytes.len() as i64),
            e_tag: Some(etag(&stored)),
            last_modified: Some(stored.at.into()),
            ..HeadObjectOutput::default()
        }))
    }

    async fn put_object(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let input = request.input;
        self.admit(&input.bucket, |requests| requests.put += 1)?;
        let body = Body::from(input.body.ok_or_else(|| s3_error!(IncompleteBody))?);
        let mut body = body;
        let bytes = body.store_all_limited(1 << 30).await.map_err(|_| s3_error!(IncompleteBody))?;
        // A client that was killed has sent less than it said, and nothing is stored.
        if input.content_length.is_some_and(|length| length != bytes.len() as i64) {
            return Err(s3_error!(IncompleteBody));
        }
        let stored = Stored { bytes: bytes.to_vec(), at: SystemTime::now() };
        let e_tag = Some(etag(&stored));
        let mut objects = locked(&self.0.objects);
        if input.if_none_match.is_some() && objects.contains_key(&input.key) {
            return Err(s3_error!(PreconditionFailed));
        }
        objects.insert(input.key, stored);
        Ok(S3Response::new(PutObjectOutput { e_tag, ..PutObjectOutput::default() }))
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let input = request.input;
        self.admit(&input.bucket, |requests| requests.delete += 1)?;
        locked(&self.0.objects).remove(&input.key);
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let input = request.input;
        self.admit(&input.bucket, |requests| requests.delete += 1)?;
        let mut deleted = Vec::new();
        for object in input.delete.objects {
            // One at a time: others see some gone and some there.
            locked(&self.0.objects).remove(&object.key);
            deleted.push(DeletedObject { key: Some(object.key), ..DeletedObject::default() });
        }
        Ok(S3Response::new(DeleteObjectsOutput {
            deleted: Some(deleted),
            ..DeleteObjectsOutput::default()
        }))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = request.input;
        self.admit(&input.bucket, |requests| requests.list += 1)?;
        let prefix = input.prefix.clone().unwrap_or_default();
        let after = input.continuation_token.or(input.start_after).unwrap_or_default();
        let most = match self.0.page.load(Ordering::SeqCst) {
            0 => 1000,
            page => page as usize,
        };
        let (mut contents, mut prefixes, mut last) = (Vec::new(), Vec::new(), None);
        for (key, stored) in locked(&self.0.objects).iter() {
            let Some(rest) = key.strip_prefix(&prefix).filter(|_| *key > after) else { continue };
            if contents.len() + prefixes.len() == most {
                last = contents.last().and_then(|object: &Object| object.key.clone());
                break;
            }
            let folder =
                input.delimiter.as_deref().and_then(|delimiter| rest.split_once(delimiter));
            if let Some((folder, _)) = folder {
                prefixes.push(format!("{prefix}{folder}/"));
                prefixes.dedup();
                continue;
            }
            contents.push(Object {
                key: Some(key.clone()),
                size: Some(stored.bytes.len() as i64),
                e_tag: Some(etag(stored)),
                last_modified: Some(stored.at.into()),
                ..Object::default()
            });
        }
        let then = if prefix.contains("runs/") { locked(&self.0.then).take() } else { None };
        if let Some(then) = then {
            // Other requests are answered meanwhile.
            let _ = tokio::task::spawn_blocking(then).await;
        }
        if self.0.repeats.load(Ordering::SeqCst) {
            last = contents.first().and_then(|object: &Object| object.key.clone()).or(Some(prefix));
        }
        let prefixes = prefixes.into_iter().map(|prefix| CommonPrefix { prefix: Some(prefix) });
        Ok(S3Response::new(ListObjectsV2Output {
            key_count: Some(contents.len() as i32),
            is_truncated: Some(last.is_some()),
            next_continuation_token: last,
            common_prefixes: Some(prefixes.collect()),
            contents: Some(contents),
            prefix: input.prefix,
            name: Some(input.bucket),
            ..ListObjectsV2Output::default()
        }))
    }
}
