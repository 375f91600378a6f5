//! The controllers: for each family, what a pass over one of its objects reads, decides, writes and reports.
//! Comes in: the name of an object; goes out: the object's children and status as they should be.

mod driver;
mod llamastack;

pub use driver::{Family, Observed, PassError, Passed, pass};
pub use llamastack::LlamaStack;
