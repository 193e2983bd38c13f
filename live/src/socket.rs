//! Pictures of a running engine over a local socket.
