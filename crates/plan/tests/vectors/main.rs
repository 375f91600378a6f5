//! Figures that the Go operator computed, and the same from here in upstream's way. Where the project's own way answers
//! otherwise, the case is listed by name with the reason.
//! `STEERSMAN_VECTORS` names another folder of such files; a file that is not there is no failure.

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
