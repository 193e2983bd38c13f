//! In place of `bucket` in builds without object stores.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use super::store::{Days, Depth, Each};

/// There is none.
#[derive(Debug)]
pub(super) enum Bucket {}

impl Bucket {
    pub(super) fn of_url(url: &str) -> Result<Self> {
        bail!(
            "{url}: this brickscope was built without object stores; `cargo install --path cli --profile dist --features \
            full,object-store` has them"
        )
    }

    pub(super) fn url(&self) -> &str {
        match *self {}
    }

    pub(super) fn copy(&self) -> &Path {
        match *self {}
    }

    pub(super) fn first_read(&self, _: &str) -> Result<Option<String>> {
        match *self {}
    }

    pub(super) fn names(&self) -> Result<Vec<String>> {
        match *self {}
    }

    pub(super) fn runs_of(&self, _: &str) -> Result<BTreeMap<String, String>> {
        match *self {}
    }

    pub(super) fn has(&self, _: &str) -> Result<bool> {
        match *self {}
    }

    pub(super) fn put(&self, _: Vec<(String, Vec<u8>)>) -> Result<()> {
        match *self {}
    }

    pub(super) fn put_new(&self, _: &str, _: Vec<u8>) -> Result<()> {
        match *self {}
    }

    pub(super) fn delete(&self, _: Vec<String>) -> Result<()> {
        match *self {}
    }

    pub(super) fn delete_orphans(&self, _: Duration) -> Result<u64> {
        match *self {}
    }

    pub(super) fn refresh(&mut self, _: Depth, _: Days<'_>, _: Each<'_>) -> Result<()> {
        match *self {}
    }
}
