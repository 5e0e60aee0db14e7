// Threads with their small alternate stacks, collections, a panic that is caught, a child process, an abort in a child.
use std::collections::{BTreeMap, HashMap};
use std::process::Command;
use std::thread;

fn churn(seed: u64) -> usize {
    let mut map: HashMap<u64, String> = HashMap::new();
    for i in 0..200_000u64 {
        map.insert((i * 31 + seed) % 7000, format!("value {}", i));
    }
    map.values().map(|v| v.len()).sum()
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("abort") {
        std::process::abort();
    }
    let handles: Vec<_> = (0..4).map(|n| thread::spawn(move || churn(n))).collect();
    let sums: Vec<usize> = handles.into_iter().map(|h| h.join().unwrap()).collect();
    println!("{:?}", sums);
    let tree: BTreeMap<usize, Vec<u8>> = (0..2000).map(|n| (n * 7919 % 2003, vec![n as u8; n])).collect();
    println!("{}", tree.values().map(|v| v.len()).sum::<usize>());
    let caught = thread::spawn(|| { let none: Option<u8> = None; none.expect("nothing there") }).join();
    println!("panic {}", caught.is_err());
    println!("probe {}", Command::new(std::env::var("PROBE").unwrap()).status().unwrap());
    let own = std::env::current_exe().unwrap();
    println!("child {}", Command::new(own).arg("abort").status().unwrap());
    let out = Command::new("/bin/sh").args(["-c", "echo shell; exit 3"]).output().unwrap();
    println!("{} {}", String::from_utf8_lossy(&out.stdout).trim(), out.status);
    std::process::exit(8);
}
