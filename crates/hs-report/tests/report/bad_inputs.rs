//! Inputs that are damaged, hostile, or something else.

use hs_trace::Profile;
use hs_units::Nanos;

use crate::{Folder, TRACE};

/// What is said of an input.
fn refused(content: &[u8]) -> String {
    let folder = Folder::new();
    let input = folder.write("input", content);
    let error = folder.report(&[&input], "report.html").expect_err("it is refused");
    assert!(!folder.path("report.html").exists(), "nothing is written");
    error
}

#[test]
fn each_has_a_reason() {
    let newer = {
        let mut bytes = Profile { ended: Nanos(5), ..Profile::default() }.encode().expect("a profile");
        bytes[8] = 99;
        bytes
    };
    let row = |row: &str| format!("at_s,offset,bytes,kind,service_s\n{row}\n").into_bytes();
    let of = |rows: &str| format!("at_s,kind,offset,bytes,stage,file\n{rows}\n").into_bytes();
    // A file that begins with bytes of this kind is no text.
    let text = "1,demand,0,1,a,/a\n".repeat(10_000);
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"".to_vec(), "an empty file"),
        (vec![0xff, 0xfe, 3], "a file of no known kind"),
        (b"HSPROF\0\0".to_vec(), "cut off"),
        (newer, "use a newer headstart"),
        (b"fio version 4 iolog\n".to_vec(), "is not read"),
        (b"just some text\n".to_vec(), "ends without a request"),
        (vec![b'x'; 100_000], "a line has more than"),
        (row(&format!("\"{}", "1,\n".repeat(1 << 20))), "a row has more than"),
        (b"{\"a\": 1}".to_vec(), "no run summary"),
        (b"{\"a\": ".to_vec(), "no JSON"),
        ("[".repeat(100_000).into_bytes(), "no JSON"),
        (b"[1]".to_vec(), "no object"),
        (b"{\"experiments\": 5}".to_vec(), "no result of `lab run`"),
        (row(""), "has no request"),
        (b"at_s,offset\n1,1\n".to_vec(), "no column 'bytes'"),
        (row("1,0,0,,"), "are no request"),
        (row("1,18446744073709551615,4096,,"), "are no request"),
        (row("1,18446744073709551616,4096,,"), "line 2: offset '18446744073709551616' is no number"),
        (row("NaN,0,4096,,"), "no time in seconds"),
        (row("-1,0,4096,,"), "no time in seconds"),
        (row("1e300,0,4096,,"), "no time in seconds"),
        (row("1,0,4096,odd,"), "'odd' is no kind of request"),
        (row("1,0"), "record"),
        (of("1,demand,0,1,a,b"), "line 2: file 'b' is no absolute path"),
        (of(&format!("1,demand,0,1,a,/{}", "b".repeat(4096))), "no absolute path of at most 4096 bytes"),
        (of(&(text.clone() + "1,demand,0,1,a,/\0")), "no absolute path"),
        (of(&format!("1,demand,0,1,{},", "b".repeat(65))), "' is no name"),
        (of(&(text + "1,demand,0,1,a\u{1b}[2J,")), "stage 'a\\u{1b}[2j' is no name"),
        (of("1,stage,,,,"), "line 2: the stage has no name"),
        (of("-1,stage,,,a,"), "no time in seconds"),
        (of("1,stage,,,a,"), "has no request"),
        (of("1,stage,0,0,a,\n0.5,stage,0,0,b,"), "line 3: stage 'b' begins before 'a' has ended"),
        (of(&"1,stage,,,a,\n".repeat(65)), "more than 64 stages"),
        (
            of(&(0..100_001).map(|at| format!("1,demand,0,1,,/{at}\n")).collect::<String>()),
            "more than 100000",
        ),
    ];
    for (content, said) in cases {
        let error = refused(&content);
        let start = String::from_utf8_lossy(&content[..content.len().min(40)]).into_owned();
        assert!(error.to_lowercase().contains(said) || error.contains(said), "{start:?}: {error}");
    }
}

#[test]
fn a_request_beyond_what_the_page_addresses_is_noted() {
    let folder = Folder::new();
    let far = folder.write("far.csv", "at_s,offset,bytes\n1,0,4096\n2,1000000000000000000,4096\n");
    let report = folder.report(&[&far], "report.json").expect("a report");
    let data: serde_json::Value =
        serde_json::from_slice(&std::fs::read(report).expect("it is there")).expect("JSON");
    assert_eq!(data["inputs"][0]["notes"][0], "1 requests behind 16 TiB are not shown.");
    assert_eq!(data["inputs"][0]["requests"]["at_s"]["count"], 1);
}

#[test]
fn a_template_without_a_place_is_refused() {
    let folder = Folder::new();
    let trace = folder.write("trace.csv", TRACE);
    let args = hs_report::Reporting {
        inputs: vec![trace.clone()],
        output: folder.path("report.html"),
        format: None,
        ui: Some(trace),
    };
    let error = hs_report::run(&args, true).expect_err("no template").to_string();
    assert!(error.contains("no place for the data"), "{error}");
}
