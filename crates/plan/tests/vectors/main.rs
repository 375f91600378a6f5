//! Compares the stages of a decision with results that the Go operator computed. Cases with another result are listed by
//! name with the reason.
//!
//! `STEERSMAN_VECTORS` names another folder with vector files; missing files in it are skipped.

#[cfg(test)]
mod config;
#[cfg(test)]
mod engines;
#[cfg(test)]
mod fallback;
#[cfg(test)]
mod file;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod queueing;
#[cfg(test)]
mod tokens;
