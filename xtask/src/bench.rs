//! `cargo xtask bench`: runs one benchmark. A benchmark without a cluster is a bench target of the crate that it measures,
//! so that only this crate is built in release mode; the benchmarks on the local cluster are in the modules below.

mod burst;
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
    /// Benchmark to run
    #[arg(value_enum, value_name = "NAME")]
    name: Name,

    /// With `llamastack`, `dynamo` and `variant`: numbers of objects, such as 10,1000; default: the sizes of the
    /// benchmark, of which some have goals
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = count)]
    objects: Vec<usize>,

    /// With `llamastack`, `dynamo` and `variant`: path of an operator that is already built, such as an earlier version to
    /// compare with
    #[arg(long, value_name = "FILE")]
    operator: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Name {
    /// Generate the configuration of a LlamaStackDistribution, and convert one between its versions
    LlamastackConfig,
    /// Convert a DynamoGraphDeploymentRequest between its versions
    DynamoConvert,
    /// Create many LlamaStackDistributions at once on the local cluster, compared with the same writes by a plain client
    Llamastack,
    /// Create many DynamoGraphDeploymentRequests at once on the local cluster, compared with the same writes by a plain
    /// client
    Dynamo,
    /// Decide on a fleet of VariantAutoscalings, without a cluster
    VariantPlan,
    /// Find the rate that a replica serves within its latency targets, without a cluster
    VariantQueueing,
    /// Reconcile fleets of VariantAutoscalings on the local cluster, with a real Prometheus: the cost of one change
    Variant,
}

impl Bench {
    /// Fails if a measured value exceeds its goal, except for `variant`, which only prints its goals.
    pub fn run(self) -> Result<()> {
        let on_cluster = matches!(self.name, Name::Llamastack | Name::Dynamo | Name::Variant);
        ensure!(
            self.objects.is_empty() || on_cluster,
            "--objects needs a benchmark on the local cluster: llamastack, dynamo or variant"
        );
        if let Some(program) = &self.operator {
            ensure!(on_cluster, "--operator needs a benchmark on the local cluster: llamastack, dynamo or variant");
            ensure!(program.is_file(), "--operator: file {} does not exist", program.display());
        }
        match self.name {
            Name::LlamastackConfig => bench_target("steersman-plan", "llamastack-config"),
            Name::DynamoConvert => bench_target("steersman-api", "dynamo-convert"),
            Name::Llamastack => llamastack::run(&self.objects, self.operator),
            Name::Dynamo => dynamo::run(&self.objects, self.operator),
            Name::VariantPlan => bench_target("steersman-plan", "variant-plan"),
            Name::VariantQueueing => bench_target("steersman-plan", "variant-queueing"),
            Name::Variant => variant::run(&self.objects, self.operator),
        }
    }
}

fn count(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "expected whole numbers of at least 1, such as 10,1000".to_owned())
}

fn bench_target(package: &str, target: &str) -> Result<()> {
    let mut command = cargo();
    command.args(["bench", "--locked", "--package", package, "--bench", target]);
    run(&command)
}
