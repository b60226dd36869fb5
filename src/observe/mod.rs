//! What happened: the log, the counters, the statistics. Nothing here can change a result.

pub mod compare;
pub mod counters;
pub mod dump;
pub mod last;
pub mod log;
pub mod stats;
