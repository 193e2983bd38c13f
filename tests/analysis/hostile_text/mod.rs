//! Whatever the texts of a file are, what people see of it is text: no field controls their terminal, forges a
//! line, or floods the screen.

mod of_profiles;
mod of_receipts;
