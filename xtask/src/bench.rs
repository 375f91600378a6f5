//! Benchmarks. What needs no cluster is a bench target of the crate that it measures, so that it is built in release mode
//! with that crate alone; what needs one is here.

mod at_once;
mod dynamo;
mod llamastack;
mod process;
mod variant;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};

use crate::command::{cargo, run};

#[derive(Args)]
#[command(arg_required_else_help = true)]
pub struct Bench {
    /// What to measure
    #[arg(value_enum, value_name = "NAME")]
    name: Name,

    /// With `llamastack`, `dynamo` and `variant`: how many objects, such as 10,1000; otherwise all that have a goal
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = count)]
    objects: Vec<usize>,

    /// With `llamastack`, `dynamo` and `variant`: a program of the operator that is built already, such as an earlier one to
    /// compare with
    #[arg(long, value_name = "FILE")]
    operator: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Name {
    /// Generating the configuration of a LlamaStackDistribution, and converting one between its versions
    LlamastackConfig,
    /// Converting a DynamoGraphDeploymentRequest between its versions
    DynamoConvert,
    /// Many LlamaStackDistributions at once on the local cluster, beside the same writes from a bare client
    Llamastack,
    /// Many DynamoGraphDeploymentRequests at once on the local cluster, beside the same writes from a bare client
    Dynamo,
    /// Deciding on a fleet of VariantAutoscalings, without a cluster
    VariantPlan,
    /// Fleets of VariantAutoscalings on the local cluster, with a real Prometheus: what one change costs
    Variant,
}

impl Bench {
    /// Fails where the benchmark finds a limit exceeded.
    pub fn run(self) -> Result<()> {
        let on_cluster = matches!(self.name, Name::Llamastack | Name::Dynamo | Name::Variant);
        ensure!(
            self.objects.is_empty() || on_cluster,
            "--objects goes with benchmarks on the local cluster: llamastack, dynamo, variant"
        );
        if let Some(program) = &self.operator {
            ensure!(on_cluster, "--operator goes with benchmarks on the local cluster: llamastack, dynamo, variant");
            ensure!(program.is_file(), "--operator: there is no file {}", program.display());
        }
        match self.name {
            Name::LlamastackConfig => bench_target("steersman-plan", "llamastack-config"),
            Name::DynamoConvert => bench_target("steersman-api", "dynamo-convert"),
            Name::Llamastack => llamastack::run(&self.objects, self.operator),
            Name::Dynamo => dynamo::run(&self.objects, self.operator),
            Name::VariantPlan => bench_target("steersman-plan", "variant-plan"),
            Name::Variant => variant::run(&self.objects, self.operator),
        }
    }
}

fn count(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "give whole numbers from 1 on, such as 10,1000".to_owned())
}

fn bench_target(package: &str, target: &str) -> Result<()> {
    let mut command = cargo();
    command.args(["bench", "--locked", "--package", package, "--bench", target]);
    run(&command)
}
