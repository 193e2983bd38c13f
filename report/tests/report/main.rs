//! Tests of pages, as their readers get them: in Chromium, and number by number beside the file.

mod browser;
mod experts;
mod folder;
mod harmless;
mod imported;
mod look;
mod pages;
mod provenance;
mod read;
mod samples;
mod two;
