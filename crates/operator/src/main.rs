//! The binary `steersman`.
//! Comes in: the command line; goes out: text on standard output, one sentence on standard error if something failed, and
//! an exit status.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use steersman::admission::{self, WebhooksArgs};
use steersman::args::Manifests;
use steersman::cli::{Cli, Command, CrdsArgs, Output, PreflightArgs};
use steersman::crds::{self, Given};
use steersman::offline::{self, Told};
use steersman::relay::decide::Ending;
use steersman::settings::Settings;
use steersman::{init, overrides, preflight, rbac, relay};
use steersman_api::crds::Options;
use steersman_runtime::client;

fn main() -> ExitCode {
    // Wrong usage ends here, with clap's words and status 2.
    let cli = Cli::parse_from(overrides::called(std::env::args_os().collect()));
    let name = if matches!(cli.command, Command::DgdApplyOverrides(_)) { overrides::NAME } else { "steersman" };
    run(cli).unwrap_or_else(|error| {
        // Nothing is left to be done if even standard error is closed.
        let _ = writeln!(io::stderr(), "{name}: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Run(settings) => operate(&settings),
        Command::Preflight(args) => on_this_thread(print_preflight(&args)),
        Command::Crds(args) => {
            let given = Given::read(&args.webhook)?;
            if args.apply || args.detach {
                return on_this_thread(write_crds(&args, &given));
            }
            let options = Options { conversion: Some(given.or_default()) };
            let text = match args.output {
                Manifests::Yaml => crds::yaml(&args.families, &options)?,
                Manifests::Json => crds::json(&args.families, &options)?,
            };
            print(&text)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Webhooks(args) => {
            if args.apply || args.remove {
                return on_this_thread(write_webhooks(&args));
            }
            let given = args.target.read()?;
            let text = match args.output {
                Manifests::Yaml => admission::yaml(&args.families, &given, args.failure_policy)?,
                Manifests::Json => admission::json(&args.families, &given, args.failure_policy)?,
            };
            print(&text)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Rbac => {
            print(&rbac::manifests()?)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Convert(args) => tell(&offline::convert(&args)?),
        Command::Validate(args) => tell(&offline::validate(&args)?),
        Command::Render(args) => tell(&offline::render(&args)?),
        Command::StorageEnv(args) => init::storage_env(&args).map(|()| ExitCode::SUCCESS),
        Command::MergeProviders(args) => {
            let lines = init::merge_providers(&args)?;
            print(&lines.iter().map(|line| format!("warning: {line}\n")).collect::<String>())?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Relay(args) => on_this_thread(async {
            Ok(match relay::relay(args).await? {
                Ending::Verdict => ExitCode::SUCCESS,
                Ending::NoVerdict => ExitCode::FAILURE,
            })
        }),
        Command::DgdApplyOverrides(args) => {
            let said = overrides::run(&args, io::stdin().lock())?;
            for remark in &said.remarks {
                writeln!(io::stderr(), "{remark}").context("cannot write to standard error")?;
            }
            print(&said.out)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn on_this_thread(work: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the async runtime")?;
    let outcome = runtime.block_on(work);
    // A credential plugin that hangs is not waited for.
    runtime.shutdown_background();
    outcome
}

async fn write_crds(args: &CrdsArgs, given: &Given) -> anyhow::Result<ExitCode> {
    let server = client::connect(&args.cluster.connect_options()).await?;
    let mut unprinted = Ok(());
    let mut say = |line: &str| say(line, &mut unprinted);
    if args.apply {
        crds::apply(&server, &args.families, given, args.wait, &mut say).await?;
    } else {
        crds::detach(&server, &args.families, given, &mut say).await?;
    }
    unprinted.map(|()| ExitCode::SUCCESS)
}

async fn write_webhooks(args: &WebhooksArgs) -> anyhow::Result<ExitCode> {
    let given = args.target.read()?;
    let server = client::connect(&args.cluster.connect_options()).await?;
    let mut unprinted = Ok(());
    let mut say = |line: &str| say(line, &mut unprinted);
    if args.apply {
        admission::apply(&server, &args.families, &given, args.failure_policy, &mut say).await?;
    } else {
        admission::remove(&server, &args.families, &mut say).await?;
    }
    unprinted.map(|()| ExitCode::SUCCESS)
}

/// What has happened is said at once: the next step may fail. That it could not be said is kept for the end.
fn say(line: &str, unprinted: &mut anyhow::Result<()>) {
    let printed = print(&format!("{line}\n"));
    if unprinted.is_ok() {
        *unprinted = printed;
    }
}

/// A few threads do, however many cores the node has: each costs memory, and what the operator does is mostly waiting.
fn operate(settings: &Settings) -> anyhow::Result<ExitCode> {
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(4));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = runtime.context("cannot start the async runtime")?;
    let outcome = runtime.block_on(steersman::run::run(settings));
    runtime.shutdown_background();
    outcome?;
    Ok(ExitCode::SUCCESS)
}

async fn print_preflight(args: &PreflightArgs) -> anyhow::Result<ExitCode> {
    let report = preflight::run(&args.cluster, rbac::all_rights()).await?;
    match args.output {
        Output::Text => print(&format!("{}\n", report.lines.join("\n")))?,
        Output::Json => print(&format!("{}\n", serde_json::to_string_pretty(&report)?))?,
    }
    Ok(if report.ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Results and remarks on streams of their own, so that results can be piped.
fn tell(told: &Told) -> anyhow::Result<ExitCode> {
    for note in &told.notes {
        // Nothing is left to be done if even standard error is closed.
        let _ = writeln!(io::stderr(), "{note}");
    }
    print(&told.out)?;
    Ok(ExitCode::from(told.ending.code()))
}

/// Unlike `println!`, does not panic when the reader has seen enough (`steersman rbac | head`).
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}
