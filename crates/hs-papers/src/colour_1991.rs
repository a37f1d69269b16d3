//! Page colouring under Linpack (Tezuka 1991, section 6, table 6).
//!
//! A cache of 64 KiB, direct-mapped by physical addresses, whose misses are counted over the data accesses of
//! Linpack's `dgefa` (Dongarra, *LINPACK Users' Guide*, 1979: order 100, columns 201 numbers apart).
//! *Without* the hint the kernel takes any free page, *with* it one whose address is that of the virtual page
//! modulo the cache. This is a model of a processor's cache: the engine has no part in it.

use hs_lab::{Cell, Claim, Figure, Report};
use hs_units::Prng;

/// Order of the matrix, and numbers from one column to the next.
const ORDER: u64 = 100;
const LEADING: u64 = 201;

const PAGE: u64 = 4 << 10;

/// Data cache: half of the 128 KB of table 1, as an R3000 has instructions and data apart.
const CACHE: u64 = 64 << 10;

/// Bytes that a miss brings.
const LINE: u64 = 16;

/// Pages of physical memory: 64 MB (table 1).
const FRAMES: u64 = (64 << 20) / PAGE;

/// A miss, in cycles of 25 MHz: the access time of 80 ns and 16 bytes at 100 MB/s (table 1).
const MISS: f64 = (80e-9 + LINE as f64 / 100e6) * 25e6;

/// Cycles for an element of `daxpy` that misses nothing: four loads and two stores of half a number each, a
/// multiplication and an addition that go on at the same time as these and cost their issue (Kane, *MIPS RISC
/// Architecture*).
const ELEMENT: f64 = 8.0;

/// Runs of the program, as in the paper.
const RUNS: u64 = 8;

/// A direct-mapped cache, and the pages behind it.
struct Cache {
    /// The line in each place, as its physical number.
    lines: Vec<u64>,
    /// The frame of each virtual page.
    frames: Vec<u64>,
    misses: u64,
}

impl Cache {
    fn new(prng: &mut Prng, hint: bool) -> Self {
        let bytes = ORDER * LEADING * 8 + ORDER * 8 * 2;
        let colours = CACHE / PAGE;
        let mut taken = vec![false; FRAMES as usize];
        let frames = (0..bytes.div_ceil(PAGE)).map(|page| {
            loop {
                let frame = prng.below(FRAMES);
                let fits = !hint || frame % colours == page % colours;
                if fits && !std::mem::replace(&mut taken[frame as usize], true) {
                    return frame;
                }
            }
        });
        let frames = frames.collect();
        Self { lines: vec![u64::MAX; (CACHE / LINE) as usize], frames, misses: 0 }
    }

    fn touch(&mut self, address: u64) {
        let physical = self.frames[(address / PAGE) as usize] * PAGE + address % PAGE;
        let line = physical / LINE;
        let place = &mut self.lines[(line % (CACHE / LINE)) as usize];
        if *place != line {
            *place = line;
            self.misses += 1;
        }
    }
}

/// The address of an element.
const fn element(row: u64, column: u64) -> u64 {
    (column * LEADING + row) * 8
}

/// Goes through the data of `dgefa`; returns the elements of `daxpy` and the misses.
fn factor(cache: &mut Cache) -> (u64, u64) {
    let mut elements = 0;
    for step in 0..ORDER - 1 {
        // idamax and dscal go over the column below the diagonal.
        for _ in 0..2 {
            (step..ORDER).for_each(|row| cache.touch(element(row, step)));
        }
        for column in step + 1..ORDER {
            cache.touch(element(step, column));
            for row in step + 1..ORDER {
                cache.touch(element(row, step));
                cache.touch(element(row, column));
                elements += 1;
            }
        }
    }
    (elements, cache.misses)
}

/// Millions of operations a second: two for each element.
fn measure(prng: &mut Prng, hint: bool) -> (f64, u64) {
    let (elements, misses) = factor(&mut Cache::new(prng, hint));
    let cycles = elements as f64 * ELEMENT + misses as f64 * MISS;
    (2.0 * elements as f64 / cycles * 25.0, misses)
}

pub(crate) fn run(seed: u64) -> Report {
    let mut prng = Prng::new(seed);
    let mut rows = Vec::new();
    let mut means = [0.0; 2];
    for (mean, (name, hint)) in means.iter_mut().zip([("no", false), ("yes", true)]) {
        for run in 1..=RUNS {
            let (rate, misses) = measure(&mut prng, hint);
            let numbers =
                [Cell::Number(run as f64, 0), Cell::Number(rate, 3), Cell::Number(misses as f64, 0)];
            rows.push([name.into()].into_iter().chain(numbers).collect());
            *mean += rate / RUNS as f64;
        }
    }
    let published = [
        [5.600, 5.849, 5.689, 5.766, 5.714, 5.500, 5.686, 5.569],
        [6.232, 5.987, 6.209, 6.140, 6.198, 6.126, 5.984, 5.903],
    ]
    .map(|runs| runs.iter().sum::<f64>() / RUNS as f64);
    let figures = vec![
        Figure::new("Linpack with the hint ÷ without, mean of eight runs", means[1] / means[0])
            .off(1.0)
            .published("002 table 6", Claim::Ratio(published[1] / published[0])),
        Figure::new("Linpack without the hint (MFLOPS)", means[0])
            .published("002 table 6", Claim::Amount(published[0])),
        Figure::new("Linpack with the hint (MFLOPS)", means[1])
            .published("002 table 6", Claim::Amount(published[1])),
    ];
    Report { columns: vec!["hint", "run", "MFLOPS", "misses"], rows, figures, seed: Some(seed) }
}
