//! `brickscope receipt`: makes keys and signs receipts.

use clap::Subcommand;
use std::path::PathBuf;

use anyhow::{Context, Result};
use brickscope_analysis::receipt::{Receipt, SecretKey};

use crate::output;
use crate::runs::{named, receipt_file};

/// Sign receipts, and make keys for signing.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope receipt keygen ~/.brickscope-key\n  brickscope receipt sign brickscope-runs/20261121-104812 --key ~/.brickscope-key"
)]
pub(crate) struct ReceiptArgs {
    #[command(subcommand)]
    pub(crate) command: ReceiptCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReceiptCommand {
    /// Add an ed25519 signature to a receipt. Receipts that were changed are refused.
    #[command(
        after_help = "Example:\n  brickscope receipt sign receipt.json --key ~/.brickscope-key"
    )]
    Sign {
        /// The receipt, or the folder of its run.
        #[arg(value_name = "FILE")]
        receipt: PathBuf,

        /// The file with the secret key.
        #[arg(long, value_name = "KEYFILE")]
        key: PathBuf,
    },
    /// Make a secret key in a new file that only you can read, and print the public key.
    #[command(after_help = "Example:\n  brickscope receipt keygen ~/.brickscope-key")]
    Keygen {
        /// The file to create.
        #[arg(value_name = "KEYFILE")]
        key_file: PathBuf,
    },
}

pub(crate) fn run(args: &ReceiptArgs) -> Result<()> {
    let line = match &args.command {
        ReceiptCommand::Keygen { key_file } => {
            format!("{}\n", SecretKey::create(key_file)?.public_key())
        }
        ReceiptCommand::Sign { receipt, key } => {
            let path = receipt_file(&named(receipt)?);
            let key = SecretKey::load(key)?;
            let mut receipt = Receipt::load(&path)?;
            receipt.sign(&key).with_context(|| path.display().to_string())?;
            receipt.save(&path)?;
            format!("{} is signed by {}\n", output::shown(&path), key.public_key())
        }
    };
    output::print(line)
}
