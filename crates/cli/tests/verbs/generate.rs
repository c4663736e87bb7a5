//! `graphweft generate`.

use std::fs;

use crate::program::Scratch;

#[test]
fn a_generated_folder_is_described_as_it_was_announced() {
    let scratch = Scratch::new();
    for spec in ["rmat:10:8", "rmat:10:8+loops", "sbm:300:4:6", "sbm:300:4:6:f=1", "grid:9:11", "ba:400:3"] {
        let dir = scratch.path(spec);
        let made = scratch.json(&["generate", spec, "-o", &dir, "--seed", "3"]);
        assert_eq!(made["path"], dir.as_str());
        assert!(made["seconds"].as_f64().unwrap() > 0.0 && made["edges_per_second"].as_f64().unwrap() > 0.0);
        assert!(made["peak_bytes"].as_u64().unwrap() > 1 << 20);

        let read = scratch.json(&["info", "--data", &dir]);
        for key in ["nodes", "edges", "features", "classes"] {
            assert_eq!(made[key], read[key], "{spec}: {key}");
        }
        assert_eq!(read["name"], spec);
        // The same graph without a folder.
        let direct = scratch.json(&["info", "--graph", spec, "--seed", "3"]);
        for key in ["edges", "components", "homophily", "degree", "class_counts"] {
            assert_eq!(direct[key], read[key], "{spec}: {key}");
        }
    }
}

#[test]
fn what_is_generated_is_valid_when_looked_at_again() {
    let scratch = Scratch::new();
    for spec in ["rmat:9:8", "sbm:100:3:5:f=7+loops", "grid:5:4", "ba:50:2"] {
        let dir = scratch.path(spec);
        scratch.json(&["generate", spec, "-o", &dir]);
        // Without the writer's own stamp every element is checked.
        fs::remove_file(format!("{dir}/.validated")).unwrap();
        scratch.json(&["info", "--data", &dir]);
    }
}

#[test]
fn threads_do_not_change_a_byte_but_the_seed_does() {
    let scratch = Scratch::new();
    let made = |name: &str, flags: &[&str]| {
        let dir = scratch.path(name);
        scratch.json(&[&["generate", "sbm:2000:5:9", "-o", &dir], flags].concat());
        ["indptr", "indices", "feat", "label", "split/default/train", "split/default/valid", "split/default/test"]
            .map(|array| fs::read(format!("{dir}/{array}.npy")).unwrap())
    };
    let one = made("one", &["--threads", "1"]);
    assert!(one == made("three", &["--threads", "3"]));
    assert!(one == made("zero", &["--seed", "0"]));
    let other = made("other", &["--seed", "1"]);
    assert!(one.iter().zip(&other).all(|(a, b)| a != b), "every array but none of its lengths depends on the seed");
}

#[test]
fn bad_requests_exit_with_2_and_leave_nothing_behind() {
    let scratch = Scratch::new();
    let target = scratch.path("g");
    for spec in ["rmat:99:1", "rmat:x", "sbm:10:20:3", "rmat:5:-1", "rmat:5:99999999999999999999", "rmat:4:4+hubs", "x"]
    {
        let message = scratch.error(2, &["generate", spec, "-o", &target]);
        assert!(message.contains("remedy") && message.contains("rmat:S:D"), "{message}");
    }
    let message = scratch.error(4, &["generate", "rmat:32:1000000", "-o", &target]);
    assert!(message.contains("memory") && message.contains("remedy"), "{message}");
    assert_eq!(fs::read_dir(scratch.path("")).unwrap().count(), 0);

    fs::create_dir(&target).unwrap();
    let message = scratch.error(2, &["generate", "grid:2:2", "-o", &target]);
    assert!(message.contains("exists already"), "{message}");
}

#[test]
fn people_get_a_table() {
    let scratch = Scratch::new();
    let out = scratch.run(&["generate", "grid:30:40", "-o", &scratch.path("g")]);
    let text = String::from_utf8(out.stdout).unwrap();
    for part in ["grid:30:40", "1 200", "4 660", "peak memory", "written to"] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
}
