use hs_units::ByteRange;

use super::*;
use crate::{Medium, PRESETS};

const SSD: &str = "name = \"mine\"\n\n[ssd]\nrbps = \"400 MB/s\"\nrseqiops = 20000\nrrandiops = 9000\n";
const DISK: &str = "name = \"attic\"\ncapacity = \"500 GB\"\n[disk]\nrpm = 7200\nheads = 10\nzones = 30\n\
    outer_rate = \"64.8 MB/s\"\ninner_rate = \"31 MB/s\"\nseek_next = \"1.8 ms\"\nseek_average = \"8.5 ms\"\n\
    seek_full = \"14.7 ms\"\nbuffer = \"512 KiB\"\ncommand = \"0.2 ms\"\ninterface = \"133 MB/s\"\n";

fn error(text: &str) -> String {
    Model::from_toml(text).expect_err(text).to_string()
}

#[test]
fn every_kind_can_be_described() {
    let ssd = Model::from_toml(SSD).expect("an SSD");
    assert_eq!((ssd.name.as_str(), ssd.capacity_bytes), ("mine", None));
    let ModelKind::Ssd(spec) = ssd.kind else { panic!("{ssd:?}") };
    assert_eq!((spec.read, spec.latency, spec.queued), (spec.write, Nanos::ZERO, true));
    let link = Model::from_toml("name='l'\n[link]\nrate='10 Mbit/s'\nround_trip='20 ms'\nshared_by=4")
        .expect("a link");
    assert_eq!(Medium::Model(link).rate_bytes_per_second(1, 0), Some(294_213));
    let flat =
        Model::from_toml("name='f'\n[flat]\nlatency='10 ms'\nrate='25 MB/s'\nserial=true").expect("flat");
    assert!(!Medium::Model(flat).overlaps());
    assert!(Medium::Model(Model::from_toml(DISK).expect("a disk")).turns());
}

#[test]
fn a_disk_of_the_same_figures_is_the_preset() {
    let own = Medium::Model(Model::from_toml(DISK).expect("a disk"));
    let known = Medium::Hdd7200;
    let mut devices = [own, known].map(|medium| medium.device(1 << 30).expect("fits").expect("modelled"));
    let mut now = Nanos::ZERO;
    for number in 0..200_u64 {
        let range = ByteRange::new(number * 7_919 % 1000 * (1 << 20), 64 << 10);
        let [own, known] = [0, 1].map(|each| devices[each].submit(now, range).done.as_secs_f64());
        // They lie 63 sectors apart on their disks.
        assert!((own - known).abs() < 0.009, "{number}: {own} {known}");
        now = Nanos::from_secs_f64(known.max(own)) + Nanos::from_millis(1);
    }
}

#[test]
fn what_is_written_is_read() {
    let own = [SSD, DISK].map(|text| Model::from_toml(text).expect("fine"));
    for model in own.into_iter().chain(PRESETS.iter().map(crate::Preset::model)) {
        let name = ModelName::new("again").expect("a name");
        let model = Model { name, ..model };
        let text = write(&model, &["fitted".to_owned()]);
        let again = Model::from_toml(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(again.name, model.name);
        assert_eq!(write(&again, &[]), write(&model, &[]));
    }
}

#[test]
fn mistakes_are_told_with_their_line() {
    for (text, said) in [
        (
            "name = \"x\"\n[ssd]\nrbps = \"400 ms\"\nrseqiops = 1\nrrandiops = 1",
            "line 3: `rbps`: '400 ms' is not a rate",
        ),
        ("name = \"x\"\n[ssd]\nrbps = 400\nrseqiops = 1\nrrandiops = 1", "line 3: invalid type"),
        (
            "name = \"x\"\n[ssd]\nrbps = \"4 MB/s\"\nrseqiops = 1\nrandiops = 1",
            "line 5: unknown field `randiops`",
        ),
        ("name = \"x\"\n[ssd]\nrbps = \"4 MB/s\"\nrseqiops = 0\nrrandiops = 1", "line 4: `rseqiops` is 0"),
        (
            "name = \"x\"\n[ssd]\nrbps = \"4 MB/s\"\nrseqiops = 9\nrrandiops = 90000",
            "line 5: `rrandiops` contradicts `rbps`",
        ),
        (
            "name = \"x\"\n[ssd]\nrbps = \"4 MB/s\"\nrseqiops = 9\nrrandiops = 9\nwseqiops = 5",
            "line 6: `wbps` contradicts",
        ),
        ("name = \"x\"\n[ssd]\nrseqiops = 1\nrrandiops = 1", "missing field `rbps`"),
        (
            "name = \"x\"\n[link]\nrate = \"10 MB/s\"\nround_trip = \"1 ms\"",
            "line 3: `rate`: '10 MB/s' is not a rate in bits",
        ),
        (
            "name = \"x\"\n[link]\nrate = \"10 Mbit/s\"\nround_trip = \"-1 ms\"",
            "line 4: `round_trip`: '-1 ms'",
        ),
        (
            "name = \"x\"\n[link]\nrate = \"10 Mbit/s\"\nround_trip = \"2 h\"",
            "its unit is not one of ns, us, ms, s",
        ),
        (
            "name = \"x\"\n[link]\nrate = \"10 Mbit/s\"\nround_trip = \"3601 s\"",
            "line 4: `round_trip` is 3601000000000",
        ),
        (
            "name = \"x\"\n[link]\nrate = \"10 Mbit/s\"\nround_trip = \"1 ms\"\nshared_by = 0",
            "line 5: `shared_by` is 0",
        ),
        ("name = \"x\"", "line 1: a model has one of the sections"),
        (
            "name = \"nvme\"\n[flat]\nlatency = \"1 ms\"\nrate = \"1 MB/s\"",
            "line 1: `name`: 'nvme' is what a built-in",
        ),
        ("name = \"A b\"\n[flat]\nlatency = \"1 ms\"\nrate = \"1 MB/s\"", "line 1: `name`: 'A b' is no name"),
        ("[flat]\nlatency = \"1 ms\"\nrate = \"1 MB/s\"", "missing field `name`"),
        ("name = \"x\"\nname = \"y\"", "line 2: duplicate key"),
        ("name = ", "line 1: "),
        ("", "missing field `name`"),
    ] {
        let found = error(text);
        assert!(found.contains(said), "{text:?} says {found}");
    }
    let two = format!("{SSD}[flat]\nlatency = \"1 ms\"\nrate = \"1 MB/s\"\n");
    assert!(
        error(&two).starts_with("line 7: ") && error(&two).contains("this file has 2"),
        "{}",
        error(&two)
    );
    for (old, new, said) in [
        ("31 MB/s", "65 MB/s", "`inner_rate` contradicts `outer_rate`"),
        ("14.7 ms", "8 ms", "`seek_average` contradicts `seek_full`"),
        ("capacity = \"500 GB\"\n", "", "needs `capacity`"),
        ("31 MB/s", "1 B/s", "a track is to hold a sector"),
        ("zones = 30", "zones = 1", "`zones` is 1"),
    ] {
        assert!(error(&DISK.replace(old, new)).contains(said), "{said}: {}", error(&DISK.replace(old, new)));
    }
}

proptest::proptest! {
    /// Whatever a file has in place of a value: a model that works, or an error.
    #[test]
    fn nothing_panics(key in 0_usize..12, value in "[0-9]{1,12}(\\.[0-9])?( ?(ms|s|MB/s|B/s|KiB|GB))?", quoted: bool) {
        let lines: Vec<&str> = DISK.lines().collect();
        let place = [1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13][key];
        let name = lines[place].split('=').next().unwrap();
        let changed = if quoted { format!("{name}= \"{value}\"") } else { format!("{name}= {value}") };
        let text: Vec<&str> = lines.iter().enumerate().map(|(at, line)| if at == place { &changed } else { *line }).collect();
        if let Ok(model) = Model::from_toml(&text.join("\n")) {
            let medium = Medium::Model(model);
            let mut device = medium.device(1 << 16).unwrap().unwrap();
            let served = device.submit(Nanos::ZERO, ByteRange::new(4096, 4096));
            proptest::prop_assert!(served.starts <= served.first_byte && served.first_byte <= served.done);
            proptest::prop_assert!(medium.rate_bytes_per_second(1 << 16, 7).is_some());
        }
    }
}
