//! Receipts: honest ones are accepted, and fifteen kinds of fraud are refused, each with its reason.
//! The forger of these tests knows this code: after each change the seal is made anew.

mod contradictions;
mod corpus;
mod devices;
mod format;
mod frauds;
mod from_table;
mod honest;
mod random;
