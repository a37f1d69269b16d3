//! The report of files as users have them.

mod bad_inputs;
mod exports;
mod page;

use std::path::{Path, PathBuf};

use hs_report::{Format, Reporting};

/// A folder with inputs and outputs.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).expect("written");
        path
    }

    /// Reports these into a new file; gives its path.
    fn report(&self, inputs: &[&Path], output: &str) -> Result<PathBuf, String> {
        let args = Reporting {
            inputs: inputs.iter().map(|path| (*path).to_owned()).collect(),
            output: self.path(output),
            format: None,
            ui: Some(self.write("template.html", TEMPLATE)),
        };
        hs_report::run(&args, true).map_err(|error| format!("{error:#}")).map(|()| args.output)
    }
}

/// As the built page, as far as the program knows it.
const TEMPLATE: &str = "<html><script id=\"data\" type=\"application/json\">null</script></html>";

/// Two processes; the first has two requests in flight at once.
const TRACE: &str = "\
input,at_s,process,pid,kind,offset,bytes,queued_s,service_s
a,0.1,p,7,demand,0,4096,0.001,0.002
a,0.1005,p,7,demand,8192,4096,0,0.01
a,0.2,p,7,write,0,512,0,0.01
a,0.6,\"q ü, \"\"</script><b>\",,prefetch,4096,8192,0,0.01
";

/// A start from a medium. The second request covers the end of a file and what lies behind it.
const STAGED: &str = "\
# {\"disk_bytes\":1048576,\"ready_s\":2.5,\"ended_s\":3}
at_s,kind,offset,bytes,service_s,request,process,pid,parent,cpu_s,stage,file
0.000000000,stage,,,1.000000000,,,,,,firmware,
1.000000000,stage,,,2.000000000,,,,,,boot loader,
0.500000000,demand,65536,2048,0.500000000,0,,,,,firmware,/boot/b.img
1.500000000,demand,67584,4096,0.500000000,1,,,,,boot loader,\"/k, \"\"1\"\"\"
1.500000000,demand,71680,2048,0.500000000,1,,,,,boot loader,
";

#[test]
fn the_name_of_a_file_says_its_format() {
    for (name, format) in [("a.html", Format::Html), ("b.pftrace", Format::Perfetto), ("c.csv", Format::Csv)]
    {
        assert_eq!(Format::of_file(Path::new(name)), Some(format));
    }
    let folder = Folder::new();
    let trace = folder.write("trace.csv", TRACE);
    let error = folder.report(&[&trace], "report.xyz").expect_err("an unknown ending");
    assert!(error.contains("--format"), "{error}");
}
