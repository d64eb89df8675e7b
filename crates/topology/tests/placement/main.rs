//! The placement rules: every input on several machines, against tables and oracles that know
//! nothing of the crate's own way to hold a machine.

mod hazards;
mod machine;
mod steering;
mod wake;
