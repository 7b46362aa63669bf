//! A defect in a daemon ends it at once, with a report in its log.
//!
//! A thread that panics leaves a process that holds its locks and answers nobody: neither `paceline start` nor a
//! supervisor can act. So the whole process ends, as if it had been killed, whichever thread it was. Its slots end with
//! it, its locks are free, and what is in the journal is there for the next start.
//!
//! * CR-1 (no zombies): after a panic in any thread of a daemon the process is gone, with exit code
//!   [`CRASH_EXIT_CODE`].

use super::log::Log;
use std::backtrace::Backtrace;
use std::io::Write;
use std::panic::PanicHookInfo;

/// The exit code of a daemon that ended by a defect of its own.
pub const CRASH_EXIT_CODE: i32 = 70;

/// Ends this process at the first panic, after a report in this log; in the foreground also on the error output.
pub fn install(log: Log, foreground: bool) {
    std::panic::set_hook(Box::new(move |panic| {
        let report = report(panic);
        log.write_last(&report);
        if foreground {
            let _ = writeln!(std::io::stderr(), "{report}");
        }
        std::process::exit(CRASH_EXIT_CODE);
    }));
}

fn report(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name");
    let (pid, version) = (std::process::id(), env!("CARGO_PKG_VERSION"));
    let trace = Backtrace::force_capture();
    format!(
        "ERROR daemon crashed pid={pid} version={version} thread={name:?}: {panic}\n{trace}\n\
         this is a defect of Paceline: please report it with these lines. Start the daemon again \
         with the command that started it (`paceline start` or `paceline join`)"
    )
}
