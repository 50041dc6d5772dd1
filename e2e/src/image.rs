//! Images without a container engine: a dynamically linked program and the libraries that it loads.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

use crate::cluster::utf8;
use crate::paths::{Paths, run};

/// Where cargo put a program of this workspace: beside the running one. `ESFLEET_BIN_DIR` names another place.
pub fn binary(name: &str) -> Result<PathBuf> {
    let directory = match std::env::var_os("ESFLEET_BIN_DIR") {
        Some(directory) => PathBuf::from(directory),
        None => {
            let program = std::env::current_exe().context("cannot tell where this program is")?;
            let directory = program.parent().context("a program has a directory")?;
            if directory.ends_with("deps") {
                directory.join("..")
            } else {
                directory.to_owned()
            }
        }
    };
    let path = directory.join(name);
    ensure!(
        path.exists(),
        "{} is missing: cargo build --workspace --bins",
        path.display()
    );
    Ok(path.canonicalize()?)
}

/// Packs `program` as `/bin/NAME` with its libraries into the OCI tar `tar`; it is the entry point.
///
/// `version` makes images of one program differ: it is in `/etc/NAME/version`, where the sample app looks for it.
pub async fn pack(paths: &Paths, program: &Path, image: &str, version: &str, tar: &Path) -> Result<()> {
    let name = program
        .file_name()
        .and_then(|name| name.to_str())
        .context("a program has a name")?;
    let stripped = tar.with_extension("stripped");
    let mut strip = Command::new("strip");
    strip.args(["--strip-debug", "-o"]).arg(&stripped).arg(program);
    run(strip, "strip").await?;

    let mut ldd = Command::new("ldd");
    ldd.arg(program);
    let libraries = libraries(&run(ldd, "ldd").await?);
    ensure!(!libraries.is_empty(), "ldd finds no libraries of {}", program.display());

    let mut command = Command::new(paths.scripts.join("mkimage.py"));
    command.arg(tar).arg(image).arg(format!(r#"["/bin/{name}"]"#));
    command.arg(format!("{}:/bin/{name}", utf8(&stripped)?));
    command.args(libraries.iter().map(|library| format!("{library}:{library}")));
    command.arg(r"text:/etc/passwd:root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n");
    command.arg(format!(r"text:/etc/{name}/version:{version}\n"));
    run(command, "mkimage.py").await?;
    std::fs::remove_file(&stripped).context("cannot remove the stripped program")
}

/// The files that `ldd` names; the vDSO has none.
fn libraries(ldd: &str) -> Vec<String> {
    let path = |line: &str| {
        line.split_whitespace()
            .find(|word| word.starts_with('/'))
            .map(str::to_owned)
    };
    ldd.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_are_the_files_that_ldd_names() {
        let output = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(
            libraries(output),
            ["/lib/x86_64-linux-gnu/libgcc_s.so.1", "/lib64/ld-linux-x86-64.so.2"]
        );
    }
}
