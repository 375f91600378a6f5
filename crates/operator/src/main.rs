//! The binary `steersman`: runs one command and reports a failure as one sentence on standard error.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use steersman::admission::{self, WebhooksArgs};
use steersman::args::ManifestFormat;
use steersman::cli::{Cli, Command, CrdsArgs, Output, PreflightArgs};
use steersman::crds::{self, TargetFlags};
use steersman::offline::{self, CommandOutput};
use steersman::relay::decide::Ending;
use steersman::settings::Settings;
use steersman::{init, overrides, preflight, relay};
use steersman_api::crds::Options;
use steersman_runtime::client;
use tokio::runtime::Builder;

fn main() -> ExitCode {
    // Wrong usage ends here, with clap's message and status 2.
    let cli = Cli::parse_from(overrides::with_command_name(std::env::args_os().collect()));
    let name = if matches!(cli.command, Command::DgdApplyOverrides(_)) { overrides::NAME } else { "steersman" };
    run(cli).unwrap_or_else(|error| {
        // A closed standard error leaves no way to report the failure; the exit status still does.
        let _ = writeln!(io::stderr(), "{name}: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Run(settings) => operate(&settings),
        Command::Preflight(args) => on_this_thread(print_preflight(&args)),
        Command::Crds(args) => {
            let flags = TargetFlags::read(&args.webhook)?;
            if args.apply || args.detach {
                return on_this_thread(write_crds(&args, &flags));
            }
            let options = Options { conversion: Some(flags.or_default()) };
            match args.output {
                ManifestFormat::Yaml => print(&crds::yaml(&args.families, &options)?),
                ManifestFormat::Json => print(&crds::json(&args.families, &options)?),
            }
        }
        Command::Webhooks(args) => {
            if args.apply || args.remove {
                return on_this_thread(write_webhooks(&args));
            }
            let flags = args.target.read()?;
            match args.output {
                ManifestFormat::Yaml => print(&admission::yaml(&args.families, &flags, args.failure_policy)?),
                ManifestFormat::Json => print(&admission::json(&args.families, &flags, args.failure_policy)?),
            }
        }
        Command::Rbac(args) => print(&args.manifests()?),
        Command::Convert(args) => print_result(&offline::convert(&args)?),
        Command::Validate(args) => print_result(&offline::validate(&args)?),
        Command::Render(args) => print_result(&offline::render(&args)?),
        Command::StorageEnv(args) => init::storage_env(&args).map(|()| ExitCode::SUCCESS),
        Command::MergeProviders(args) => {
            let lines = init::merge_providers(&args)?;
            print(&lines.iter().map(|line| format!("warning: {line}\n")).collect::<String>())
        }
        Command::Relay(args) => on_this_thread(async {
            Ok(match relay::relay(args).await? {
                Ending::Verdict => ExitCode::SUCCESS,
                Ending::NoVerdict => ExitCode::FAILURE,
            })
        }),
        Command::DgdApplyOverrides(args) => {
            let output = overrides::run(&args, io::stdin().lock())?;
            for remark in &output.remarks {
                writeln!(io::stderr(), "{remark}").context("cannot write to standard error")?;
            }
            print(&output.out)
        }
    }
}

fn on_this_thread(work: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    block_on(&mut Builder::new_current_thread(), work)?
}

fn block_on<T>(builder: &mut Builder, work: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = builder.enable_all().build().context("cannot start the async runtime")?;
    let outcome = runtime.block_on(work);
    // Dropping the runtime would wait for a credential plugin that hangs.
    runtime.shutdown_background();
    Ok(outcome)
}

async fn write_crds(args: &CrdsArgs, flags: &TargetFlags) -> anyhow::Result<ExitCode> {
    let server = client::connect(&args.cluster.connect_options()).await?;
    let mut unprinted = Ok(());
    let mut say = |line: &str| say(line, &mut unprinted);
    if args.apply {
        crds::apply(&server, &args.families, flags, args.wait, &mut say).await?;
    } else {
        crds::detach(&server, &args.families, flags, &mut say).await?;
    }
    unprinted.map(|()| ExitCode::SUCCESS)
}

async fn write_webhooks(args: &WebhooksArgs) -> anyhow::Result<ExitCode> {
    let flags = args.target.read()?;
    let server = client::connect(&args.cluster.connect_options()).await?;
    let mut unprinted = Ok(());
    let mut say = |line: &str| say(line, &mut unprinted);
    if args.apply {
        admission::apply(&server, &args.families, &flags, args.failure_policy, &mut say).await?;
    } else {
        admission::remove(&server, &args.families, &mut say).await?;
    }
    unprinted.map(|()| ExitCode::SUCCESS)
}

/// Prints a completed step at once, because the next step may fail. The first failure to print is returned at the end.
fn say(line: &str, unprinted: &mut anyhow::Result<()>) {
    let printed = print(&format!("{line}\n"));
    if unprinted.is_ok() {
        *unprinted = printed.map(|_| ());
    }
}

/// Runs the operator on at most four threads: each costs memory, and the operator mostly waits.
fn operate(settings: &Settings) -> anyhow::Result<ExitCode> {
    limit_malloc_arenas();
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(4));
    block_on(Builder::new_multi_thread().worker_threads(threads), steersman::run::run(settings))??;
    Ok(ExitCode::SUCCESS)
}

/// Limits the memory that glibc keeps: by default each thread gets an arena of its own, up to eight per core, which hardly
/// shrinks. Reconciles plan on many short-lived threads.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "mallopt has no safe wrapper")]
fn limit_malloc_arenas() {
    // SAFETY: it changes a setting of the allocator, before any other thread runs.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn limit_malloc_arenas() {}

async fn print_preflight(args: &PreflightArgs) -> anyhow::Result<ExitCode> {
    let report = preflight::run(&args.cluster, args.rbac.rights()).await?;
    match args.output {
        Output::Text => print(&format!("{}\n", report.lines.join("\n")))?,
        Output::Json => print(&format!("{}\n", serde_json::to_string_pretty(&report)?))?,
    };
    Ok(if report.ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints notes on standard error, so that the result alone can be piped.
fn print_result(output: &CommandOutput) -> anyhow::Result<ExitCode> {
    for note in &output.notes {
        // A closed standard error must not suppress the result.
        let _ = writeln!(io::stderr(), "{note}");
    }
    print(&output.out)?;
    Ok(ExitCode::from(output.ending.code()))
}

/// Prints to standard output. Unlike `println!`, does not panic if the reader closes the pipe (`steersman rbac | head`).
fn print(text: &str) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
