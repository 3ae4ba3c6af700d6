//! Stand-ins for what SCV talks to. They serve loopback only and do what a test scripts.

pub mod model;
