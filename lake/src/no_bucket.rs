//! In place of `bucket` in builds without object stores.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::Host;
use crate::part::{Days, Depth, Each};

/// There is none.
#[derive(Debug)]
pub(crate) enum Bucket {}

impl Bucket {
    pub(crate) fn of_url(url: &str, _: &Host) -> Result<Self> {
        bail!(
            "{url}: this brickscope was built without object stores; `cargo install --path cli --profile dist --features \
            full,object-store` has them"
        )
    }

    pub(crate) fn url(&self) -> &str {
        match *self {}
    }

    pub(crate) fn copy(&self) -> &Path {
        match *self {}
    }

    pub(crate) fn first_read(&self, _: &str) -> Result<Option<String>> {
        match *self {}
    }

    pub(crate) fn names(&self) -> Result<Vec<String>> {
        match *self {}
    }

    pub(crate) fn runs_of(&self, _: &str) -> Result<BTreeMap<String, String>> {
        match *self {}
    }

    pub(crate) fn has(&self, _: &str) -> Result<bool> {
        match *self {}
    }

    pub(crate) fn put(&self, _: Vec<(String, Vec<u8>)>) -> Result<()> {
        match *self {}
    }

    pub(crate) fn put_new(&self, _: &str, _: Vec<u8>) -> Result<()> {
        match *self {}
    }

    pub(crate) fn delete(&self, _: Vec<String>) -> Result<()> {
        match *self {}
    }

    pub(crate) fn delete_orphans(&self, _: Duration) -> Result<u64> {
        match *self {}
    }

    pub(crate) fn refresh(&mut self, _: Depth, _: Days<'_>, _: Each<'_>) -> Result<()> {
        match *self {}
    }
}
