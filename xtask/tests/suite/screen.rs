//! The screen of `cargo xtask up` on a terminal. The terminal is restored however the command ends.

use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};
use steersman_testkit::process::is_running;
use steersman_testkit::{PseudoTerminal, process_tree};

use crate::support::{cluster_is_built, eventually, xtask};

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

/// A shell on a terminal that runs `up`, prints its exit code and waits.
pub struct Session {
    pub terminal: PseudoTerminal,
    shell: Child,
}

impl Session {
    /// Waits until the screen is shown.
    pub fn start(arguments: &str) -> Self {
        let terminal = PseudoTerminal::open(80, 24).unwrap();
        let up = xtask();
        // The shell handles Ctrl-C itself, so that it outlives the command: the kernel resets a terminal whose session ends.
        let script =
            format!("trap : INT; '{}' up {arguments}; echo \"exit code $?\"; read end", up.get_program().display());
        let mut command = Command::new("setsid");
        command.args(["--ctty", "sh", "-c", &script]).envs(up.get_envs().filter_map(|(name, set)| Some((name, set?))));
        for (name, value) in up.get_envs() {
            if value.is_none() {
                command.env_remove(name);
            }
        }
        let shell = terminal.attach(&mut command).unwrap().spawn().unwrap();
        Self { terminal, shell }
    }

    pub fn wait_for(&self, text: &str) {
        eventually(&format!("{text:?} in {:?}", self.terminal.output()), || self.terminal.output().contains(text));
    }

    /// Ids of the command and its descendants.
    pub fn processes(&self) -> Vec<u32> {
        process_tree::descendants(self.shell.id())
    }

    fn kill(&self, is_wanted: impl Fn(u32) -> bool) {
        let id = self.processes().into_iter().find(|id| is_wanted(*id)).expect("the process is running");
        kill_process(Pid::from_raw(i32::try_from(id).unwrap()).unwrap(), Signal::KILL).unwrap();
    }

    /// Checks that the command has ended with this code and left the terminal as it was. Returns what it printed after the
    /// screen.
    pub fn check_end(&self, processes: &[u32], code: i32) -> String {
        self.wait_for(&format!("exit code {code}"));
        let output = self.terminal.output();
        let (shown, after) = output.rsplit_once(LEAVE).expect("the screen was left");
        assert!(shown.contains("\x1b[?25h"), "the cursor is shown again");
        assert!(!after.contains('\x1b'), "nothing is drawn after the screen: {after:?}");
        assert!(self.terminal.echoes_lines().unwrap(), "the settings of the terminal are restored");
        eventually("all processes have ended", || !processes.iter().any(|id| is_running(*id)));
        after.to_owned()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        process_tree::end_descendants(self.shell.id());
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

fn file_of(id: u32, name: &str) -> String {
    std::fs::read_to_string(format!("/proc/{id}/{name}")).unwrap_or_default()
}

#[test]
fn screen_shows_all_sections_until_ctrl_c() {
    if !cluster_is_built() {
        return;
    }
    let session = Session::start("");
    session.wait_for(ENTER);
    for text in ["Requests", "Servers", "Variants", "llama-l40s", "Simulated: ", "describe dgdr"] {
        session.wait_for(text);
    }
    assert!(!session.terminal.echoes_lines().unwrap(), "keys are not echoed into the screen");
    // Only the larger screen has room for all requests and servers. Which of them the small one shows depends on their
    // state.
    session.terminal.resize(140, 50).unwrap();
    for text in ["Requests\x1b[0m  \x1b[0m11: ", "thorough", "simple"] {
        session.wait_for(text);
    }
    let processes = session.processes();
    session.terminal.press("ls\n\x1a\x03").unwrap();
    let after = session.check_end(&processes, 130);
    assert!(!after.contains("error"), "{after}");
}

#[test]
fn killed_operator_is_reported_after_the_screen() {
    if !cluster_is_built() {
        return;
    }
    let session = Session::start("");
    session.wait_for("Servers");
    let processes = session.processes();
    session.kill(|id| file_of(id, "comm").trim() == "steersman");
    let after = session.check_end(&processes, 1);
    assert!(after.contains("error: steersman ended by itself"), "{after}");
    let log = after.split("The whole log of the operator is kept in ").nth(1).expect(&after).lines().next().unwrap();
    assert!(std::fs::read_to_string(log.trim()).unwrap().contains("\"msg\":\"starting\""), "{log}");
}

#[test]
fn guard_restores_the_terminal_of_a_killed_worker() {
    if !cluster_is_built() {
        return;
    }
    let session = Session::start("");
    session.wait_for("Servers");
    let processes = session.processes();
    session.kill(|id| file_of(id, "cmdline").starts_with("steersman-worker"));
    let after = session.check_end(&processes, 137);
    assert!(after.contains("error: the worker process was killed by signal 9"), "{after}");
}

#[test]
fn plain_flag_prints_lines_on_a_terminal() {
    if !cluster_is_built() {
        return;
    }
    let session = Session::start("--plain");
    session.wait_for("llsd simple ");
    assert!(!session.terminal.output().contains(ENTER));
    session.terminal.press("\x03").unwrap();
    session.wait_for("exit code 130");
}
