//! DuckDB's dynamic library: the part of its C interface that a query needs.
//! <https://duckdb.org/docs/stable/clients/c/overview>
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

use anyhow::{Context, Result, bail, ensure};
use libloading::Library;

/// `duckdb_result`. The fields before the last are for earlier versions.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawResult {
    deprecated: [u64; 3],
    deprecated_columns: *mut c_void,
    deprecated_error: *mut c_char,
    internal: *mut c_void,
}

/// `duckdb_string_t`: up to 12 bytes in place, longer texts behind a pointer after the first four.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawText {
    length: u32,
    rest: [u8; 12],
}

/// What `duckdb_state` is if all went well.
const SUCCESS: c_int = 0;

/// The functions of the interface that are used here.
#[derive(Clone, Copy)]
struct Functions {
    open: unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int,
    connect: unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int,
    query: unsafe extern "C" fn(*mut c_void, *const c_char, *mut RawResult) -> c_int,
    result_error: unsafe extern "C" fn(*mut RawResult) -> *const c_char,
    column_count: unsafe extern "C" fn(*mut RawResult) -> u64,
    column_name: unsafe extern "C" fn(*mut RawResult, u64) -> *const c_char,
    fetch_chunk: unsafe extern "C" fn(RawResult) -> *mut c_void,
    chunk_size: unsafe extern "C" fn(*mut c_void) -> u64,
    chunk_vector: unsafe extern "C" fn(*mut c_void, u64) -> *mut c_void,
    vector_data: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    vector_validity: unsafe extern "C" fn(*mut c_void) -> *mut u64,
    destroy_chunk: unsafe extern "C" fn(*mut *mut c_void),
    destroy_result: unsafe extern "C" fn(*mut RawResult),
    disconnect: unsafe extern "C" fn(*mut *mut c_void),
    close: unsafe extern "C" fn(*mut *mut c_void),
    version: unsafe extern "C" fn() -> *const c_char,
}

/// Names of columns, and rows of texts; `None` is `NULL`.
pub(crate) type Texts = (Vec<String>, Vec<Vec<Option<String>>>);

/// A database in memory, in this process.
pub(crate) struct Database {
    functions: Functions,
    database: *mut c_void,
    connection: *mut c_void,
    // Its functions are called until the end.
    _library: Library,
}

impl Database {
    /// Loads the library: the file at `path`, or the one of this name that the system's loader finds.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        // SAFETY: DuckDB's library does nothing when it is loaded but set up its own data.
        let library = unsafe { Library::new(path) }?;
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the type is that of the function in `duckdb.h`, in all versions that have it.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }?
            };
        }
        let functions = Functions {
            open: symbol!("duckdb_open"),
            connect: symbol!("duckdb_connect"),
            query: symbol!("duckdb_query"),
            result_error: symbol!("duckdb_result_error"),
            column_count: symbol!("duckdb_column_count"),
            column_name: symbol!("duckdb_column_name"),
            fetch_chunk: symbol!("duckdb_fetch_chunk"),
            chunk_size: symbol!("duckdb_data_chunk_get_size"),
            chunk_vector: symbol!("duckdb_data_chunk_get_vector"),
            vector_data: symbol!("duckdb_vector_get_data"),
            vector_validity: symbol!("duckdb_vector_get_validity"),
            destroy_chunk: symbol!("duckdb_destroy_data_chunk"),
            destroy_result: symbol!("duckdb_destroy_result"),
            disconnect: symbol!("duckdb_disconnect"),
            close: symbol!("duckdb_close"),
            version: symbol!("duckdb_library_version"),
        };
        let mut database =
            Self { functions, database: null_mut(), connection: null_mut(), _library: library };
        // SAFETY: no path means a database in memory; the pointer is to a place for the handle.
        let opened = unsafe { (functions.open)(null(), &mut database.database) };
        if opened != SUCCESS {
            bail!("DuckDB can't make a database in memory");
        }
        // SAFETY: the database is open, and the pointer is to a place for the handle.
        let connected = unsafe { (functions.connect)(database.database, &mut database.connection) };
        if connected != SUCCESS {
            bail!("DuckDB can't connect to its database in memory");
        }
        Ok(database)
    }

    /// The library's version.
    pub(crate) fn version(&self) -> String {
        // SAFETY: it returns a text that lives as long as the library.
        unsafe { text((self.functions.version)()) }
    }

    /// Runs statements without a result.
    pub(crate) fn run(&self, sql: &str) -> Result<()> {
        self.query(sql).map(drop)
    }

    /// Runs a query whose columns are all texts. Returns their names, and the rows.
    pub(crate) fn texts(&self, sql: &str) -> Result<Texts> {
        let mut result = self.query(sql)?;
        let functions = &self.functions;
        // SAFETY: the result is of a query that succeeded.
        let columns = unsafe { (functions.column_count)(&mut result.raw) };
        // SAFETY: likewise, and the column is one of them.
        let name = |at| unsafe { text((functions.column_name)(&mut result.raw, at)) };
        let names: Vec<String> = (0..columns).map(name).collect();
        let mut rows = Vec::new();
        loop {
            // SAFETY: the result is of a query that succeeded, and is alive.
            let mut chunk = unsafe { (functions.fetch_chunk)(result.raw) };
            if chunk.is_null() {
                // SAFETY: the result is of a query that succeeded, and is alive.
                let error = unsafe { text((functions.result_error)(&mut result.raw)) };
                ensure!(error.is_empty(), "{error}");
                return Ok((names, rows));
            }
            // SAFETY: the chunk was just fetched; its vectors live until it is destroyed.
            unsafe {
                let size = (functions.chunk_size)(chunk);
                let begin = rows.len();
                rows.resize(begin + size as usize, Vec::with_capacity(columns as usize));
                for column in 0..columns {
                    let vector = (functions.chunk_vector)(chunk, column);
                    let data = (functions.vector_data)(vector).cast::<RawText>();
                    let validity = (functions.vector_validity)(vector);
                    for row in 0..size as usize {
                        // No mask means that no value is absent.
                        let is_valid =
                            validity.is_null() || (*validity.add(row / 64) >> (row % 64)) & 1 == 1;
                        rows[begin + row].push(is_valid.then(|| value(&*data.add(row))));
                    }
                }
                (functions.destroy_chunk)(&mut chunk);
            }
        }
    }

    fn query(&self, sql: &str) -> Result<Answered<'_>> {
        let sql = CString::new(sql).context("the query has a zero byte")?;
        let raw = RawResult {
            deprecated: [0; 3],
            deprecated_columns: null_mut(),
            deprecated_error: null_mut(),
            internal: null_mut(),
        };
        let mut result = Answered { raw, functions: &self.functions };
        // SAFETY: the connection is open, the text ends with a zero, and the result is one to fill in.
        let state =
            unsafe { (self.functions.query)(self.connection, sql.as_ptr(), &mut result.raw) };
        if state != SUCCESS {
            // SAFETY: the result is of the query that failed, and has its error.
            let error = unsafe { text((self.functions.result_error)(&mut result.raw)) };
            bail!("{error}");
        }
        Ok(result)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: both handles are those that DuckDB gave, or null, which it ignores.
        unsafe {
            (self.functions.disconnect)(&mut self.connection);
            (self.functions.close)(&mut self.database);
        }
    }
}

struct Answered<'f> {
    raw: RawResult,
    functions: &'f Functions,
}

impl Drop for Answered<'_> {
    fn drop(&mut self) {
        // SAFETY: the result was filled in by a query, and is destroyed once.
        unsafe { (self.functions.destroy_result)(&mut self.raw) };
    }
}

/// A text of DuckDB's, or an empty one for none.
///
/// # Safety
///
/// The pointer is null, or to a text that ends with a zero.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: by the caller.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// # Safety
///
/// The text is in a vector that is alive.
unsafe fn value(raw: &RawText) -> String {
    let length = raw.length as usize;
    let bytes = match raw.rest.get(..length) {
        Some(bytes) => bytes,
        None => {
            let mut pointer = [0; size_of::<usize>()];
            pointer.copy_from_slice(&raw.rest[4..][..size_of::<usize>()]);
            let data = usize::from_ne_bytes(pointer) as *const u8;
            // SAFETY: longer texts are behind a pointer at offset 8, which lives as long as the vector.
            unsafe { std::slice::from_raw_parts(data, length) }
        }
    };
    String::from_utf8_lossy(bytes).into_owned()
}
