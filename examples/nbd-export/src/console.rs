//! What is told on standard error: a log, and, on a terminal, a line below it about what goes on.
//!
//! A thread of its own writes it, so that whoever does not read it holds nobody up but the log.

use std::io::{self, IsTerminal as _, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// More lines than this that nobody has read are lost.
const LINES: usize = 1024;
/// For so long the end waits for what has been told to be written.
const END: Duration = Duration::from_secs(1);

/// A line before the log has begun, or after it. Lost if standard error is closed.
pub(crate) fn say(what: &str) {
    let _ = writeln!(io::stderr(), "nbd-export: {}", in_one_line(what));
}

/// Names of exports and files may have any characters: those that would end the line, or that a
/// terminal obeys, are escaped.
fn in_one_line(what: &str) -> String {
    let mut line = String::with_capacity(what.len());
    for c in what.chars() {
        if c.is_control() {
            line.extend(c.escape_debug());
        } else {
            line.push(c);
        }
    }
    line
}

enum Told {
    Line(String),
    Status(String),
}

/// The way to standard error.
pub(crate) struct Console {
    told: Mutex<Option<SyncSender<Told>>>,
    lost: Arc<AtomicU64>,
    writer: Mutex<Option<JoinHandle<()>>>,
    pub(crate) is_terminal: bool,
}

impl Console {
    pub(crate) fn new() -> io::Result<Self> {
        let is_terminal = io::stderr().is_terminal();
        let (told, heard) = sync_channel(LINES);
        let lost = Arc::new(AtomicU64::new(0));
        let screen = Screen::new(io::stderr(), lost.clone());
        let builder = thread::Builder::new().name("nbd-log".to_owned());
        Ok(Self {
            told: Mutex::new(Some(told)),
            lost,
            writer: Mutex::new(Some(builder.spawn(|| screen.write(heard))?)),
            is_terminal,
        })
    }

    fn tell(&self, what: Told) {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(told) = &*told else { return };
        if let Err(TrySendError::Full(Told::Line(_))) = told.try_send(what) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn line(&self, line: String) {
        self.tell(Told::Line(in_one_line(&line)));
    }

    pub(crate) fn status(&self, status: String) {
        self.tell(Told::Status(in_one_line(&status)));
    }

    /// Has what was told be written, and a last line, if somebody reads it.
    pub(crate) fn end(&self, mut last: Option<String>) {
        let pause = || thread::sleep(Duration::from_millis(1));
        last = last.map(|line| in_one_line(&line));
        let told = self
            .told
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let since = Instant::now();
        while let (Some(told), Some(line)) = (&told, last.take()) {
            match told.try_send(Told::Line(line)) {
                Err(TrySendError::Full(Told::Line(line))) if since.elapsed() < END => {
                    last = Some(line);
                    pause();
                }
                _ => {}
            }
        }
        drop(told);
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(writer) = writer.take() else { return };
        while !writer.is_finished() && since.elapsed() < END {
            pause();
        }
    }
}

/// Lines, and below them the status.
struct Screen<W> {
    out: W,
    status: String,
    lost: Arc<AtomicU64>,
}

impl<W: Write> Screen<W> {
    const fn new(out: W, lost: Arc<AtomicU64>) -> Self {
        Self {
            out,
            status: String::new(),
            lost,
        }
    }

    fn write(mut self, heard: Receiver<Told>) {
        for told in heard {
            // There is nobody to be told that it cannot be told.
            let _ = match told {
                Told::Line(line) => self.line(&line),
                Told::Status(status) => self.status(status),
            };
        }
        if !self.status.is_empty() {
            let _ = writeln!(self.out);
        }
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let mut text = String::new();
        if !self.status.is_empty() {
            text.push_str("\r\x1b[K");
        }
        if lost > 0 {
            text.push_str(&format!("nbd-export: {lost} lines are not shown\n"));
        }
        text.push_str(line);
        text.push('\n');
        text.push_str(&self.status);
        self.out.write_all(text.as_bytes())
    }

    fn status(&mut self, status: String) -> io::Result<()> {
        self.status = status;
        write!(self.out, "\r\x1b[K{}", self.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a terminal shows, line by line: `\r` goes to a line's start, and `\x1b[K` clears it.
    fn shown(bytes: &[u8]) -> Vec<String> {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let clear = |line: &str| line.rsplit("\r\x1b[K").next().unwrap().to_owned();
        text.split('\n').map(clear).collect()
    }

    #[test]
    fn lines_and_status_do_not_mix() {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, Arc::default());
        screen.line("one").unwrap();
        screen.status("busy".to_owned()).unwrap();
        screen.line("two").unwrap();
        screen.line("three").unwrap();
        screen.status("idle".to_owned()).unwrap();
        assert_eq!(shown(&out), ["one", "two", "three", "idle"]);
    }

    #[test]
    fn what_is_lost_is_counted() {
        let mut out = Vec::new();
        let lost = Arc::new(AtomicU64::new(3));
        let mut screen = Screen::new(&mut out, lost);
        screen.line("one").unwrap();
        screen.line("two").unwrap();
        let expected = ["nbd-export: 3 lines are not shown", "one", "two", ""];
        assert_eq!(shown(&out), expected);
    }
}
