//! Benchmarks. Each is a bench target of the crate that it measures, so that it is built in release mode with that crate
//! alone; this names them.

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::command::{cargo, run};

#[derive(Args)]
pub struct Bench {
    /// What to measure
    #[arg(value_enum, value_name = "NAME")]
    name: Name,
}

#[derive(Clone, Copy, ValueEnum)]
enum Name {
    /// Generating the configuration of a LlamaStackDistribution, and converting one between its versions
    LlamastackConfig,
}

impl Bench {
    /// Fails where the benchmark finds a limit exceeded.
    pub fn run(self) -> Result<()> {
        let (package, target) = match self.name {
            Name::LlamastackConfig => ("steersman-plan", "llamastack-config"),
        };
        let mut command = cargo();
        command.args(["bench", "--locked", "--package", package, "--bench", target]);
        run(&command)
    }
}
