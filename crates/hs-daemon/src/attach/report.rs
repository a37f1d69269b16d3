//! What `headstart attach` says of its file: a line, or an object with `--json`.

use std::path::PathBuf;

use hs_output::show;
use hs_service::background::Parent;
use hs_service::careful::resolve;
use hs_service::status;
use serde_json::{Value, json};

use super::Attach;
use super::control;

/// The processes behind a file that is not complete.
#[derive(Default)]
pub(super) struct Behind {
    pub(super) guard: Option<u32>,
    /// The process that fills.
    pub(super) server: Option<u32>,
    pub(super) control_socket: Option<PathBuf>,
    /// Where their messages go.
    pub(super) log: Option<String>,
}

/// Speaks of one file.
pub(super) struct Report<'a> {
    pub(super) args: &'a Attach,
    pub(super) quiet: bool,
}

impl Report<'_> {
    /// The file is complete and has no guard. Gives the exit code.
    pub(super) fn is_complete(&self, parent: Option<Parent>) -> anyhow::Result<i32> {
        let object = self.object("complete", false, Behind::default);
        self.end(parent, format_args!("{} is complete", self.args.file.display()), &object)
    }

    /// Another guard has the file. Gives the exit code.
    pub(super) fn was_attached(&self, parent: Option<Parent>) -> anyhow::Result<i32> {
        let object = self.object("filling", true, || self.behind());
        self.end(parent, format_args!("{} was attached already", self.args.file.display()), &object)
    }

    /// The object for a file that fills itself from now on.
    pub(super) fn fills(&self, behind: impl FnOnce() -> Behind) -> Value {
        self.object("filling", false, behind)
    }

    /// Says a line, or prints the object that stands for it.
    pub(super) fn say(&self, line: std::fmt::Arguments<'_>, object: &Value) {
        if self.args.json {
            show::announce(object);
        } else if !self.quiet {
            hs_output::note!("{line}");
        }
    }

    fn end(
        &self,
        parent: Option<Parent>,
        line: std::fmt::Arguments<'_>,
        object: &Value,
    ) -> anyhow::Result<i32> {
        // A parent prints the object itself; standard error is the same for both.
        if parent.is_none() || !self.args.json {
            self.say(line, object);
        }
        parent.map_or(Ok(()), |parent| parent.tell(object)).map(|()| 0)
    }

    /// What the server of another guard says of itself.
    fn behind(&self) -> Behind {
        let file = resolve(&self.args.file);
        let servers = status::servers().unwrap_or_default();
        let server = servers.into_iter().find(|server| server.dir == file);
        Behind {
            guard: server.as_ref().and_then(|server| server.fill.as_ref()).map(|fill| fill.guard),
            server: server.as_ref().map(|server| server.pid),
            control_socket: control::socket_of(&self.args.file).ok(),
            log: server.map(|server| server.log),
        }
    }

    /// Null without `--json`. A path that is not UTF-8 is shown with replacement characters.
    fn object(&self, state: &str, was_attached: bool, behind: impl FnOnce() -> Behind) -> Value {
        if !self.args.json {
            return Value::Null;
        }
        let Behind { guard, server, control_socket, log } = behind();
        json!({
            "file": resolve(&self.args.file).to_string_lossy(),
            "image": self.args.image.shown(),
            "state": state,
            "was_attached": was_attached,
            "guard": guard,
            "pid": server,
            "control_socket": control_socket.map(|path| path.to_string_lossy().into_owned()),
            "log": log,
        })
    }
}
