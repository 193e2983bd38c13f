//! A receipt's tests as rows for programs, in the forms in which llama-bench prints.
