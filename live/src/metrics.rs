//! Prometheus text over HTTP.
