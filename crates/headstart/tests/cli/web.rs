//! nginx, as people run it, for one test: a real server of images that knows nothing of us.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::process::{Pid, Signal, kill_process};

use crate::scene::{Ran, Scene, headstart, wait_until};

/// Where Debian has it, which is not on every PATH.
pub(crate) const NGINX: &str = "/usr/sbin/nginx";

/// What the test's own requests begin with, which do not count.
const OWN: &str = "/told-";

/// One nginx, which serves the folder `www` of the scene.
pub(crate) struct Nginx {
    child: Child,
    log: PathBuf,
    pub(crate) port: u16,
    /// Requests that the test itself has made.
    own: AtomicU64,
}

impl Nginx {
    /// Starts it; `extra` goes into its server block.
    pub(crate) fn start(scene: &Scene, extra: &str) -> Self {
        Self::start_at(scene, 0, extra)
    }

    /// The same at a certain port, which another has just left.
    pub(crate) fn start_at(scene: &Scene, port: u16, extra: &str) -> Self {
        let root = scene.arg("www");
        Self::begin(scene, port, |port| format!("server {{ listen 127.0.0.1:{port}; root {root}; {extra} }}"))
    }

    /// The same with this socket, which may be of another network than this process.
    pub(crate) fn start_on(scene: &Scene, listener: TcpListener, extra: &str) -> Self {
        let (root, address) = (scene.arg("www"), listener.local_addr().expect("an address"));
        Self::begin_on(scene, listener, |_| format!("server {{ listen {address}; root {root}; {extra} }}"))
    }

    /// Starts it with what `http` puts into the block of that name, when it is told the port.
    pub(crate) fn start_with(scene: &Scene, http: impl FnOnce(u16) -> String) -> Self {
        Self::begin(scene, 0, http)
    }

    fn begin(scene: &Scene, port: u16, http: impl FnOnce(u16) -> String) -> Self {
        // The socket is made here and inherited, as nginx does it when it replaces itself: so the port is
        // free for certain.
        let mut listener = None;
        wait_until("the port is free", || {
            listener = TcpListener::bind(("127.0.0.1", port)).ok();
            listener.is_some()
        });
        Self::begin_on(scene, listener.expect("waited for"), http)
    }

    fn begin_on(scene: &Scene, listener: TcpListener, http: impl FnOnce(u16) -> String) -> Self {
        let port = listener.local_addr().expect("an address").port();
        let work = scene.path(&format!("nginx-{port}"));
        fs::create_dir_all(scene.path("www")).expect("a folder");
        let _ = fs::create_dir(&work);
        let work_text = work.display();
        let places: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|what| format!("{what}_temp_path {work_text}/{what};\n"))
            .collect();
        let log = work.join("access.log");
        let text = format!(
            "daemon off; user root; worker_processes 1; pid {work_text}/pid; error_log stderr warn;\n\
             events {{}}\n\
             http {{ {places} log_format full '$status $bytes_sent $request_length $request $http_range';\n\
             access_log {work_text}/access.log full;\n\
             {} }}\n",
            http(port)
        );
        fs::write(work.join("nginx.conf"), text).expect("written");
        let child = Command::new(NGINX)
            .args(["-c", &format!("{work_text}/nginx.conf"), "-p", &work_text.to_string()])
            .args(["-e", "stderr"])
            .env("NGINX", "0;")
            .stdin(OwnedFd::from(listener))
            .stdout(Stdio::null())
            .stderr(fs::File::create(work.join("stderr")).expect("a file"))
            .spawn()
            .expect("nginx starts");
        Self { child, log, port, own: AtomicU64::new(0) }
    }

    /// The address of a file.
    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/{name}", self.port)
    }

    /// Requests that it has answered: status, bytes in all that went over the connection, both ways, and the
    /// request.
    pub(crate) fn answered(&self) -> Vec<(u16, u64, String)> {
        self.wait_until_told();
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let line = |line: &str| {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            let number = |at: usize| words[at].parse::<u64>().expect("a number");
            (number(0) as u16, number(1) + number(2), words[3].to_owned())
        };
        text.lines().filter(|line| !line.contains(OWN)).map(line).collect()
    }

    /// nginx writes of a request after it has answered, one after the other: when it has told of a request
    /// that was made just now, it has told of all that were answered before.
    fn wait_until_told(&self) {
        let path = format!("{OWN}{}", self.own.fetch_add(1, Relaxed));
        let asked = TcpStream::connect(("127.0.0.1", self.port)).and_then(|mut stream| {
            write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
            stream.read_to_end(&mut Vec::new())
        });
        if asked.is_ok() {
            let told = format!("{path} ");
            wait_until("nginx has told of it", || {
                fs::read_to_string(&self.log).is_ok_and(|text| text.contains(&told))
            });
        }
    }

    /// The same, when so many have been: nginx writes of a request after it has answered.
    pub(crate) fn wait_answered(&self, count: usize) -> Vec<(u16, u64, String)> {
        wait_until("nginx has told of every request", || self.answered().len() >= count);
        self.answered()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Killed by force it would leave its worker behind.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// The program, with folders of the scene for what it keeps, and no proxy of this machine.
pub(crate) fn remote<S: AsRef<std::ffi::OsStr>>(
    scene: &Scene,
    arguments: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = headstart(arguments);
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    command.current_dir(scene.path(""));
    command
}

/// The same with its home in the scene, which it notes uploads in as well, and without what this machine has
/// set for clouds.
pub(crate) fn without_clouds(scene: &Scene, arguments: &[&str]) -> Command {
    let mut command = remote(scene, arguments);
    if arguments.contains(&"push") {
        command.arg("--upload-state=state");
    }
    let of_clouds = |name: &str| ["AWS_", "GOOGLE_", "AZURE_"].iter().any(|prefix| name.starts_with(prefix));
    for (name, _) in std::env::vars().filter(|(name, _)| of_clouds(name)) {
        command.env_remove(name);
    }
    command.env("HOME", scene.path("home"));
    command
}

/// Runs it to its end.
pub(crate) fn run_remote(scene: &Scene, arguments: &[&str]) -> Ran {
    remote(scene, arguments).output().expect("the program starts").into()
}
