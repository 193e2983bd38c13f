//! The GGUF container: reading and writing model files.
