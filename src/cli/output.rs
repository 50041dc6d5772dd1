//! Standard output and standard error.

use std::io::{self, ErrorKind, IsTerminal, Write};

use super::CommandError;

/// Prints a result. Whoever closed the pipe has read enough: that is no error.
pub(super) fn print(text: &str) -> Result<(), CommandError> {
    print_to(&mut io::stdout().lock(), text)
}

fn print_to(out: &mut dyn Write, text: &str) -> Result<(), CommandError> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(CommandError::Failed(format!(
            "cannot write to standard output: {error}"
        ))),
        _ => Ok(()),
    }
}

/// Whether somebody still reads what is printed; a watch ends when nobody does.
pub(super) fn is_read(text: &str) -> bool {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}

/// Tells an error; there is nobody left to tell when that fails.
pub(super) fn complain(error: &CommandError) {
    let _ = writeln!(io::stderr().lock(), "error: {error}");
}

/// Whether results go to a terminal.
pub(super) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether colours are wanted: on a terminal, unless NO_COLOR is set to anything but nothing.
pub(super) fn colours() -> bool {
    is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken(ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        assert!(print_to(&mut Broken(ErrorKind::BrokenPipe), "text").is_ok());
    }

    #[test]
    fn a_full_disk_is_an_error() {
        assert!(print_to(&mut Broken(ErrorKind::StorageFull), "text").is_err());
    }
}
