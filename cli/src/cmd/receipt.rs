//! `brickscope receipt`: keys, and signatures of receipts.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use brickscope_analysis::receipt::{Receipt, SecretKey};

use crate::args::{ReceiptArgs, ReceiptCommand};
use crate::run_dir::receipt_in;

pub(crate) fn run(args: &ReceiptArgs) -> Result<()> {
    let line = match &args.command {
        ReceiptCommand::Keygen { key_file } => {
            format!("{}\n", SecretKey::create(key_file)?.public_key())
        }
        ReceiptCommand::Sign { receipt, key } => {
            let path = receipt_file(receipt);
            let key = SecretKey::load(key)?;
            let mut receipt = Receipt::load(&path)?;
            receipt.sign(&key).with_context(|| path.display().to_string())?;
            receipt.save(&path)?;
            format!("{} is signed by {}\n", path.display(), key.public_key())
        }
    };
    stdout().lock().write_all(line.as_bytes()).context("standard output")
}

/// The file of a receipt that is named by itself or by the folder of its run.
pub(crate) fn receipt_file(named: &Path) -> PathBuf {
    if named.is_dir() { receipt_in(named) } else { named.to_owned() }
}
