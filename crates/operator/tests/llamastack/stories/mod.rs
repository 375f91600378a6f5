//! The user stories, one file per story, with a test for each acceptance criterion.

mod us1;
mod us2;
mod us3;
mod us4;
mod us5;
mod us6;
mod us7;
mod us8;
