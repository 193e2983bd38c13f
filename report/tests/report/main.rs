//! Tests of pages, as their readers get them: in Chromium, and number by number beside the file.

mod browser;
mod experts;
mod folder;
mod pages;
mod provenance;
