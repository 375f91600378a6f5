//! The terminal while a screen is shown: its alternate screen, without cursor and without echo of typed keys.
//!
//! The terminal is left as it was, however the screen ends: with [`Screen`], with a panic, when the guard is gone
//! ([`leave`]), and when the worker was killed ([`SavedTerminal`], in the guard). Only if guard and worker are killed at once does
//! it stay as it is; `reset` repairs it.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use anyhow::{Context, Result, bail};
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::queue;
use crossterm::style::{Attribute, Color, Print, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr,
    tcgetwinsize, tcsetattr,
};

/// Value of a special character of the terminal that disables it.
const DISABLED: u8 = 0;

/// The settings of the terminal before the screen; `None` while there is no screen. Whoever writes to the terminal holds the
/// lock, so that nothing is drawn once the screen was left.
static SETTINGS_BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The look of a text. Each has a meaning; the text itself must say the same, because colours can be off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    Heading,
    Faint,
    Good,
    Waiting,
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub text: String,
    pub style: Style,
}

pub type Line = Vec<Span>;

/// Columns and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub width: usize,
    pub height: usize,
}

/// Whether a screen can be shown: standard output is a terminal that can position the cursor, and its user waits for this
/// command instead of having put it into the background. `guard` is the process that the user has started.
pub fn is_usable(guard: u32) -> bool {
    let positions = std::env::var("TERM").is_ok_and(|kind| !kind.is_empty() && kind != "dumb");
    io::stdout().is_terminal() && positions && is_in_foreground(guard)
}

/// Whether the process belongs to the foreground group of its terminal. The worker cannot ask the terminal: it has another
/// session.
fn is_in_foreground(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name before the parenthesis may contain anything. Then: state, parent, group, session, terminal, foreground group.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    fields.len() > 5 && fields[2] == fields[5]
}

/// The shown screen. Dropping it restores the terminal.
pub struct Screen {
    drawn_lines: Vec<Line>,
    drawn_size: Size,
    colors: bool,
}

impl Screen {
    pub fn enter() -> Result<Self> {
        leave_on_panic();
        let mut stdout = io::stdout();
        let before = tcgetattr(&stdout).context("cannot read the settings of the terminal")?;
        let mut settings = before.clone();
        settings.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        // Ctrl-S would block the process, and Ctrl-Z would stop the guard alone, while the worker goes on drawing.
        settings.input_modes.remove(InputModes::IXON);
        settings.special_codes[SpecialCodeIndex::VSUSP] = DISABLED;
        let size = size()?;
        let mut settings_before = lock();
        // The settings come first: by them, the guard recognizes a screen that was not left.
        tcsetattr(&stdout, OptionalActions::Now, &settings).context("cannot change the settings of the terminal")?;
        *settings_before = Some(before);
        drop(settings_before);
        let screen = Self { drawn_lines: Vec::new(), drawn_size: size, colors: colors_are_wanted() };
        queue!(stdout, EnterAlternateScreen, Hide, Clear(ClearType::All))?;
        stdout.flush()?;
        Ok(screen)
    }

    /// Writes the lines that differ from those on the screen. Fails if the screen was left, as after a panic in a task.
    pub fn draw(&mut self, lines: Vec<Line>, size: Size) -> Result<()> {
        let resized = size != self.drawn_size;
        if !resized && lines == self.drawn_lines {
            return Ok(());
        }
        let mut output = Vec::new();
        queue!(output, BeginSynchronizedUpdate)?;
        if resized {
            queue!(output, Clear(ClearType::All))?;
            self.drawn_lines.clear();
        }
        let empty = Line::new();
        for row in 0..lines.len().max(self.drawn_lines.len()) {
            let line = lines.get(row).unwrap_or(&empty);
            if self.drawn_lines.get(row).unwrap_or(&empty) != line {
                let row = u16::try_from(row)?;
                queue!(output, MoveTo(0, row), Clear(ClearType::CurrentLine))?;
                for span in line {
                    write_span(&mut output, span, self.colors)?;
                }
            }
        }
        queue!(output, EndSynchronizedUpdate)?;
        let settings_before = lock();
        if settings_before.is_none() {
            bail!("a part of this program failed; its message is above");
        }
        let mut stdout = io::stdout();
        stdout.write_all(&output).and_then(|()| stdout.flush()).context("cannot write to the terminal")?;
        drop(settings_before);
        (self.drawn_lines, self.drawn_size) = (lines, size);
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Restores the terminal if a screen is shown. Nothing is drawn afterwards.
pub fn leave() {
    if let Some(before) = lock().take() {
        restore(&before);
    }
}

/// The size of the terminal. It is read each time: only the guard gets the signal of a change.
pub fn size() -> Result<Size> {
    let size = tcgetwinsize(io::stdout()).context("cannot read the size of the terminal")?;
    Ok(Size { width: usize::from(size.ws_col), height: usize::from(size.ws_row) })
}

/// The settings of a terminal, as the guard found them.
pub struct SavedTerminal {
    settings: Termios,
}

impl SavedTerminal {
    /// `None` if standard output is no terminal.
    pub fn save() -> Option<Self> {
        Some(Self { settings: tcgetattr(io::stdout()).ok()? })
    }

    /// Restores the terminal if the worker ended without doing so. In the background nothing is changed: the settings are
    /// then those of another program.
    pub fn restore_if_changed(&self) {
        let changed = tcgetattr(io::stdout()).is_ok_and(|now| now.local_modes != self.settings.local_modes);
        if changed && is_in_foreground(std::process::id()) {
            restore(&self.settings);
        }
    }
}

/// An error is ignored: the terminal may be closed.
fn restore(before: &Termios) {
    let mut stdout = io::stdout();
    let _ = queue!(stdout, SetAttribute(Attribute::Reset), Show, LeaveAlternateScreen);
    let _ = stdout.flush();
    // Keys that were typed without echo were not meant for the shell.
    let _ = tcflush(&stdout, QueueSelector::IFlush);
    let _ = tcsetattr(&stdout, OptionalActions::Now, before);
}

fn lock() -> MutexGuard<'static, Option<Termios>> {
    SETTINGS_BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The message of a panic would vanish with the screen.
fn leave_on_panic() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            print(panic);
        }));
    });
}

/// See <https://no-color.org>.
fn colors_are_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn write_span(output: &mut Vec<u8>, span: &Span, colors: bool) -> io::Result<()> {
    let (color, attribute) = match span.style {
        Style::Plain => (None, None),
        Style::Heading => (None, Some(Attribute::Bold)),
        Style::Faint => (None, Some(Attribute::Dim)),
        Style::Good => (Some(Color::Green), None),
        Style::Waiting => (Some(Color::Yellow), None),
        Style::Failed => (Some(Color::Red), Some(Attribute::Bold)),
    };
    if let Some(color) = color.filter(|_| colors) {
        queue!(output, SetForegroundColor(color))?;
    }
    if let Some(attribute) = attribute {
        queue!(output, SetAttribute(attribute))?;
    }
    queue!(output, Print(&span.text), SetAttribute(Attribute::Reset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(style: Style, colors: bool) -> String {
        let mut output = Vec::new();
        write_span(&mut output, &Span { text: "x".to_owned(), style }, colors).unwrap();
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn colors_are_omitted_if_off() {
        // The variable NO_COLOR of the test's environment must not count.
        crossterm::style::force_color_output(true);
        let styles = [Style::Plain, Style::Heading, Style::Faint, Style::Good, Style::Waiting, Style::Failed];
        let color_code = "\x1b[38;5;";
        let colored: Vec<Style> =
            styles.into_iter().filter(|style| written(*style, true).contains(color_code)).collect();
        assert_eq!(colored, [Style::Good, Style::Waiting, Style::Failed]);
        assert!(styles.into_iter().all(|style| !written(style, false).contains(color_code)));
        assert_eq!(written(Style::Plain, true), "x\x1b[0m");
    }

    /// Set in the process of the test below that panics.
    const PANIC_VARIABLE: &str = "STEERSMAN_TEST_PANIC_ON_SCREEN";

    #[test]
    fn panic_restores_the_terminal_before_its_message() {
        if std::env::var_os(PANIC_VARIABLE).is_some() {
            let screen = Screen::enter().unwrap();
            // Without this, the screen would be left when it is dropped, after the message.
            std::mem::forget(screen);
            panic!("this message must be readable");
        }
        let terminal = steersman_testkit::PseudoTerminal::open(80, 24).unwrap();
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["panic_restores_the_terminal_before_its_message", "--nocapture"]).env(PANIC_VARIABLE, "1");
        assert!(!terminal.attach(&mut command).unwrap().status().unwrap().success());
        let started = std::time::Instant::now();
        while !terminal.output().contains("test result") && started.elapsed().as_secs() < 60 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let output = terminal.output();
        let (shown, after) = output.rsplit_once("\x1b[?1049l").expect(&output);
        assert!(shown.contains("\x1b[?1049h") && after.contains("this message must be readable"), "{output:?}");
        assert!(terminal.echoes_lines().unwrap());
    }

    #[test]
    fn process_of_another_session_is_not_in_foreground() {
        // A process without terminal has the foreground group -1, which is no group.
        assert!(!is_in_foreground(u32::MAX));
        let mut command = std::process::Command::new("/bin/sleep");
        command.arg("60");
        steersman_testkit::process::detach(&mut command);
        let mut child = steersman_testkit::process::spawn_child_bound_to_parent(command).unwrap();
        assert!(!is_in_foreground(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
