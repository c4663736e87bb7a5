//! `graphweft info` on real graphs, made graphs and broken folders.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::program::{Scratch, shared_data};
use serde_json::{Value, json};

/// The number after `key` in a `SOURCE.txt` or `meta.toml`, if it is stated.
fn stated(text: &str, key: &str) -> Option<f64> {
    let (_, rest) = text.split_once(key)?;
    let rest = rest.trim_start_matches([' ', '=']);
    rest.split(|c: char| !c.is_ascii_digit() && c != '.').next()?.parse().ok()
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs the shared graphs")]
fn every_shared_graph_has_the_counts_of_its_meta_and_source() {
    let data = shared_data();
    let scratch = Scratch::new();
    let mut seen = 0;
    for folder in fs::read_dir(data).unwrap().map(|e| e.unwrap().path()) {
        let Ok(meta) = fs::read_to_string(folder.join("meta.toml")) else { continue };
        let info = scratch.json(&["info", "--data", folder.to_str().unwrap()]);
        let name = folder.display();
        for (key, stored) in
            [("nodes", "num_nodes"), ("edges", "num_edges"), ("features", "num_features"), ("classes", "num_classes")]
        {
            assert_eq!(info[key].as_f64(), stated(&meta, stored), "{name}: {key}");
        }
        let source = fs::read_to_string(folder.join("SOURCE.txt")).unwrap();
        let components = stated(&source, "weak_components=");
        assert!(components.is_some());
        assert_eq!(info["components"].as_f64(), components, "{name}: components");
        match stated(&source, "edge_homophily=") {
            Some(stated) => {
                let found = info["homophily"].as_f64().unwrap();
                assert!((found - stated).abs() < 0.001, "{name}: homophily {found} against {stated}");
            }
            None => assert_eq!(info["homophily"], Value::Null, "{name}"),
        }
        seen += 1;
    }
    assert!(seen > 0, "the shared folder has no dataset");
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs the shared graphs")]
fn the_known_homophilies_come_out() {
    let data = shared_data();
    let scratch = Scratch::new();
    for (name, expected) in [("cora", 0.810), ("actor", 0.217)] {
        let info = scratch.json(&["info", "--data", data.join(name).to_str().unwrap()]);
        let found = info["homophily"].as_f64().unwrap();
        assert!((found - expected).abs() <= 0.001, "{name}: {found}");
    }
}

#[test]
fn the_keys_that_other_programs_rely_on_are_there() {
    let info = Scratch::new().json(&["info", "--graph", "sbm:600:3:8:h=0.75:f=5+loops", "--seed", "4"]);
    assert_eq!(info["nodes"], 600);
    assert_eq!(info["features"], 5);
    assert_eq!(info["classes"], 3);
    assert_eq!(info["self_loops"], 600);
    assert_eq!(info["components"], 1);
    assert_eq!(info["partitions"], json!([]));
    assert_eq!(info["class_counts"], json!([200, 200, 200]));
    assert!((info["homophily"].as_f64().unwrap() - 0.75).abs() < 0.03);
    let (mean, edges) = (info["degree"]["mean"].as_f64().unwrap(), info["edges"].as_f64().unwrap());
    assert!((mean - edges / 600.0).abs() < 1e-9);
    assert!(info["degree"]["max"].as_u64().unwrap() > 8);

    let grid = Scratch::new().json(&["info", "--graph", "grid:4:5"]);
    assert_eq!((&grid["homophily"], &grid["degree"]["max"]), (&Value::Null, &json!(4)));
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs the shared graphs")]
fn a_graph_is_changed_before_it_is_described() {
    let data = shared_data();
    let scratch = Scratch::new();
    let dir = data.join("law-cnr2000");
    let info = scratch.json(&["info", "--data", dir.to_str().unwrap(), "--symmetrise", "--self-loops", "remove"]);
    // SOURCE.txt: 2,738,969 undirected simple edges.
    assert_eq!(info["edges"], 2 * 2_738_969);
    assert_eq!((&info["self_loops"], &info["symmetric"]), (&json!(0), &json!(true)));
}

#[test]
fn exactly_one_origin_is_asked_for() {
    let scratch = Scratch::new();
    scratch.error(2, &["info"]);
    scratch.error(2, &["info", "--data", "x", "--graph", "grid:2:2"]);
    let message = scratch.error(2, &["info", "--graph", "rmat:99:1"]);
    assert!(message.contains("S is \"99\"") && message.contains("rmat:S:D"), "{message}");
}

/// Breaks one file of a good folder and returns what `info` says.
fn broken(scratch: &Scratch, name: &str, breakage: impl Fn(&Path)) -> String {
    let dir = scratch.path(name);
    scratch.json(&["generate", "sbm:50:2:4:f=3", "-o", &dir]);
    breakage(Path::new(&dir));
    scratch.error(3, &["info", "--data", &dir])
}

/// Puts other bytes into a file.
fn overwrite(file: &Path, at: usize, with: &[u8]) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at..at + with.len()].copy_from_slice(with);
    fs::write(file, bytes).unwrap();
}

#[test]
fn broken_folders_are_refused_by_file_and_field() {
    let scratch = Scratch::new();
    let message = scratch.error(3, &["info", "--data", &scratch.path("nowhere")]);
    assert!(message.contains("nowhere") && message.contains("remedy"), "{message}");

    let message = broken(&scratch, "no-meta", |dir| fs::remove_file(dir.join("meta.toml")).unwrap());
    assert!(message.contains("meta.toml"), "{message}");

    let message = broken(&scratch, "cut", |dir| {
        let bytes = fs::read(dir.join("indices.npy")).unwrap();
        fs::write(dir.join("indices.npy"), &bytes[..bytes.len() - 5]).unwrap();
    });
    assert!(message.contains("indices.npy") && message.contains("length"), "{message}");

    let message = broken(&scratch, "id", |dir| overwrite(&dir.join("indices.npy"), 128, &1000u32.to_le_bytes()));
    assert!(message.contains("indices.npy") && message.contains("indices[0] = 1000"), "{message}");

    let message = broken(&scratch, "nan", |dir| overwrite(&dir.join("feat.npy"), 128 + 16, &f32::NAN.to_le_bytes()));
    assert!(message.contains("feat.npy") && message.contains("feat[1, 1]"), "{message}");

    let message = broken(&scratch, "label", |dir| overwrite(&dir.join("label.npy"), 128, &7i64.to_le_bytes()));
    assert!(message.contains("label.npy") && message.contains("label[0] = 7"), "{message}");
}

#[test]
fn a_folder_marked_read_only_is_left_as_it_is_even_by_root() {
    let scratch = Scratch::new();
    let dir = scratch.path("g");
    scratch.json(&["generate", "grid:3:3", "-o", &dir]);
    fs::remove_file(format!("{dir}/.validated")).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o555)).unwrap();
    scratch.json(&["info", "--data", &dir]);
    assert!(!Path::new(&dir).join(".validated").exists());
    let stamps = fs::read_dir(scratch.path("cache/graphweft/validated")).unwrap();
    assert_eq!(stamps.count(), 1, "the stamp lies in the user's cache instead");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_plot_is_an_svg_with_title_and_axes() {
    let scratch = Scratch::new();
    let file = scratch.path("degrees.svg");
    scratch.json(&["info", "--graph", "rmat:10:8", "--plot", &file]);
    let svg = fs::read_to_string(&file).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for text in ["rmat:10:8: 1 024 nodes", "degree (log scale)", "nodes (log scale)", "of at least this degree"] {
        assert!(svg.contains(text), "{text} is missing");
    }
    // Graphs with nothing to draw still give a figure.
    scratch.json(&["info", "--graph", "grid:1:1", "--plot", &file]);
    let message = scratch.error(1, &["info", "--graph", "grid:2:2", "--plot", &scratch.path("no/such/folder/x.svg")]);
    assert!(message.contains("no/such/folder"), "{message}");
}
