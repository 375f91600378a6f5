//! Compares `Mode::Upstream` with results that the Go operator computed. Cases in which `Mode::Steersman` differs are
//! listed by name with the reason.
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
mod tokens;
