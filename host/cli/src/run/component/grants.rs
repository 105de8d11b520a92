//! What a component may use: what the user has granted, and nothing else.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;

use incumbent::Leadership;
use incumbent_plugin::LeadershipCtx;
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxBuilder};

use super::limit::Limit;
use super::output_pump::OutputPump;
use super::quota::{Quota, RANDOM};
use crate::args;
use crate::exit::{End, bad_input};
use crate::parse::{Directory, check_prefix};

/// Granted for all terms.
#[derive(Debug)]
pub struct Grants {
    directories: Vec<Directory>,
    variables: Vec<(String, String)>,
    arguments: Vec<String>,
    keys: Vec<String>,
    network: bool,
    /// In bytes.
    memory: usize,
    stdout: OutputPump,
    stderr: OutputPump,
}

impl Grants {
    /// Checks all grants, so that one that cannot be given is found at once.
    pub fn new(file: &Path, run: &args::Run) -> Result<Self, End> {
        let (granted, arguments) = (&run.grants, &run.command);
        granted.keys.iter().try_for_each(|prefix| check_prefix(prefix, &run.election))?;
        let mut texts = vec![file.file_name().unwrap_or_default().to_string_lossy().into_owned()];
        for argument in arguments {
            let text = argument.to_str().ok_or_else(|| {
                bad_input(format!(
                    "the argument {argument:?} is not text (UTF-8), and a component takes only \
                     text: write it with letters and numbers"
                ))
            })?;
            texts.push(text.to_owned());
        }
        let pumps =
            OutputPump::to(io::stdout()).and_then(|out| Ok((out, OutputPump::to(io::stderr())?)));
        let (stdout, stderr) = pumps.map_err(|error| not_started(&error))?;
        let grants = Self {
            directories: granted.directories.clone(),
            variables: granted.variables.clone(),
            arguments: texts,
            keys: granted.keys.clone(),
            network: granted.network,
            memory: usize::try_from(granted.max_memory)
                .unwrap_or(usize::MAX)
                .saturating_mul(1 << 20),
            stdout,
            stderr,
        };
        grants.opened()?;
        Ok(grants)
    }

    /// With the directories opened.
    fn opened(&self) -> Result<WasiCtxBuilder, End> {
        let mut context = WasiCtxBuilder::new();
        for Directory { host, guest } in &self.directories {
            context.preopened_dir(host, guest, FsPerms::ReadWrite).map_err(|error| {
                bad_input(format!(
                    "--dir {} cannot be opened ({}): give a directory that can",
                    host.display(),
                    error.root_cause()
                ))
            })?;
        }
        Ok(context)
    }

    /// The context of one run. Variables of `environment` win over granted ones.
    pub fn context(
        &self,
        environment: &[(&'static str, OsString)],
        limit: &Arc<Limit>,
    ) -> Result<WasiCtx, End> {
        let mut context = self.opened()?;
        for (name, value) in &self.variables {
            context.env(name, value);
        }
        for (name, value) in environment {
            context.env(name, value.to_string_lossy());
        }
        context.args(&self.arguments).inherit_stdin().max_random_size(RANDOM);
        context.stdout(self.stdout.within(limit)).stderr(self.stderr.within(limit));
        if self.network {
            context.inherit_network().allow_ip_name_lookup(true);
        } else {
            context.allow_tcp(false).allow_udp(false);
        }
        Ok(context.build())
    }

    /// Its leadership, and the keys that it may use with it.
    pub fn leadership(&self, leadership: &Leadership) -> LeadershipCtx {
        self.keys.iter().fold(LeadershipCtx::of_term(leadership), |granted, prefix| {
            granted.grant(prefix.as_bytes())
        })
    }

    /// The quota of one run.
    pub fn quota(&self) -> Quota {
        Quota::new(self.memory)
    }

    /// Waits until what the component has printed is written. Cancel safe.
    pub async fn printed(&self) {
        self.stdout.written().await;
        self.stderr.written().await;
    }
}

/// The system refused a thread, or a file.
pub fn not_started(error: &io::Error) -> End {
    bad_input(format!(
        "the component does not start ({error}): allow this user more processes (ulimit -u) and \
         open files (ulimit -n)"
    ))
}
