//! What happened: the log, the counters, the statistics. Nothing here can change a result.

pub mod compare;
pub mod counters;
pub mod dump;
pub mod file;
pub mod format;
pub mod last;
pub mod log;
pub mod report;
pub mod stats;
pub mod through;
