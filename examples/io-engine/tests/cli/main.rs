//! The program as its users run it.

mod failures;
mod fio;
mod program;
mod runs;
mod sandbox;
mod serving;
mod sharing;
mod verify;
