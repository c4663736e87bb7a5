use std::path::{Path, PathBuf};

use super::folder::Newest;
use super::*;
use crate::config::TrainConfig;
use crate::run::schedule::Schedule;

fn checkpoint(epoch: u64) -> Checkpoint {
    let mut model = Tensors::default();
    model.add_vector("a.weight", &[1.0, 2.0, epoch as f64]);
    let best = Scores { epoch: 1, train: 90.0, valid: 0.1 + 0.2, test: 80.0, valid_loss: 0.5 };
    let schedule = Schedule::new(&TrainConfig::default()).state();
    Checkpoint {
        state: State { epoch, steps: epoch, seed: 3, best: Some(best), improved: 1, schedule, data: None },
        best: model.clone(),
        optimizer: Tensors::default(),
        model,
        config: "[train]\nepochs = 5\n".into(),
        plan: "{}\n".into(),
        partition: None,
        metrics: b"{\"epoch\":1}\n".to_vec(),
    }
}

fn folder(dir: &Path, every: u64, keep: u64) -> Checkpoints {
    Checkpoints::new(dir.join("checkpoints"), every, keep)
}

fn names(of: &Checkpoints) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(of.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn files(path: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn what_is_saved_is_read_back_and_written_the_same_again() {
    let dir = tempfile::tempdir().unwrap();
    let all = folder(dir.path(), 10, 2);
    let path = all.save(&checkpoint(10)).unwrap();
    assert!(path.ends_with("step-000010"));
    assert_eq!(Checkpoint::read(&path).unwrap(), checkpoint(10));
    let bytes = || -> Vec<_> { files(&path).iter().map(|f| fs::read(f).unwrap()).collect() };
    let first = bytes();
    assert_eq!(first.len(), 9);
    all.save(&checkpoint(10)).unwrap();
    assert!(first == bytes());
    assert_eq!(names(&all), ["step-000010"]);
}

#[test]
fn a_checkpoint_that_was_set_aside_for_another_one_is_not_lost() {
    let dir = tempfile::tempdir().unwrap();
    let all = folder(dir.path(), 10, 2);
    let path = all.save(&checkpoint(10)).unwrap();
    // Killed between the two renames of a replacement.
    fs::rename(&path, hidden(&path, "old")).unwrap();
    fs::create_dir(hidden(&path, "partial")).unwrap();
    assert_eq!(all.newest().unwrap().found.unwrap().checkpoint, checkpoint(10));
    all.clean().unwrap();
    assert_eq!(names(&all), ["step-000010"]);
    assert_eq!(Checkpoint::read(&path).unwrap(), checkpoint(10));
}

/// Checkpoints of epochs 10 and 20, and where the newer one is.
fn saved_twice(dir: &Path) -> (Checkpoints, PathBuf) {
    let all = folder(dir, 10, 2);
    all.save(&checkpoint(10)).unwrap();
    let path = all.save(&checkpoint(20)).unwrap();
    (all, path)
}

/// Hands `spoil` each file of the newer one, which it may change, and its bytes.
fn each_file(path: &Path, spoil: impl Fn(&Path, &[u8])) {
    for file in files(path) {
        let good = fs::read(&file).unwrap();
        spoil(&file, &good);
        fs::write(&file, &good).unwrap();
    }
}

#[test]
fn a_flipped_byte_anywhere_is_named_and_an_older_checkpoint_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let (all, path) = saved_twice(dir.path());
    each_file(&path, |file, good| {
        for at in [0, good.len() / 3, good.len() / 2, good.len() - 1] {
            let mut bad = good.to_vec();
            bad[at] ^= 0x10;
            fs::write(file, &bad).unwrap();
            let Newest { found, mut damaged } = all.newest().unwrap();
            assert_eq!(found.unwrap().checkpoint, checkpoint(10), "byte {at} of {}", file.display());
            assert_eq!(damaged.len(), 1);
            let passed_over = damaged.remove(0);
            assert_eq!(passed_over.path, path);
            for error in [Checkpoint::read(&path).unwrap_err(), passed_over.why] {
                let message = error.to_string();
                assert!(message.contains(file.to_str().unwrap()), "byte {at} of {}: {message}", file.display());
                assert!(matches!(error, crate::Error::Graph(Bad::BadInput { .. })));
            }
        }
    });
    assert!(Checkpoint::read(&path).is_ok());
}

#[test]
fn a_truncated_or_missing_file_is_passed_over_by_auto_and_named_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let (all, path) = saved_twice(dir.path());
    each_file(&path, |file, good| {
        for length in [Some(0), Some(good.len() / 2), Some(good.len() - 2), None] {
            match length {
                Some(length) => fs::write(file, &good[..length]).unwrap(),
                None => fs::remove_file(file).unwrap(),
            }
            let message = Checkpoint::read(&path).unwrap_err().to_string();
            assert!(message.contains(file.to_str().unwrap()), "{message}");
            let Newest { found, damaged } = all.newest().unwrap();
            assert_eq!(found.unwrap().checkpoint, checkpoint(10), "{}", file.display());
            assert_eq!(damaged.iter().map(|d| &d.path).collect::<Vec<_>>(), [&path]);
        }
    });
    assert_eq!(all.newest().unwrap().found.unwrap().checkpoint, checkpoint(20));
}

#[test]
fn where_none_is_whole_that_is_an_error_and_where_none_was_made_it_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let all = folder(dir.path(), 10, 2);
    assert!(all.newest().unwrap().whole().unwrap().is_none());
    // Killed while it wrote its first, or while it removed one: neither has its name.
    for leftover in [".step-000010.partial", ".step-000004.gone"] {
        fs::create_dir_all(all.path().join(leftover)).unwrap();
    }
    assert!(all.newest().unwrap().whole().unwrap().is_none());
    let (old, new) = (all.save(&checkpoint(10)).unwrap(), all.save(&checkpoint(20)).unwrap());
    fs::write(new.join(MODEL), "short").unwrap();
    assert_eq!(all.newest().unwrap().whole().unwrap().unwrap().folder, old);
    let mut bytes = fs::read(old.join(BEST)).unwrap();
    bytes[9] ^= 1;
    fs::write(old.join(BEST), bytes).unwrap();
    let message = all.newest().unwrap().whole().unwrap_err().to_string();
    for part in [new.join(MODEL).to_str().unwrap(), "1 older ones", "remedy", "nothing was changed"] {
        assert!(message.contains(part), "{part} is missing: {message}");
    }
    // One that was set aside and spoiled was there as well.
    fs::remove_dir_all(&new).unwrap();
    fs::rename(&old, hidden(&old, "old")).unwrap();
    assert!(all.newest().unwrap().whole().unwrap_err().to_string().contains("the only one"));
}

#[test]
fn half_written_ones_are_ignored_and_cleaned_away() {
    let dir = tempfile::tempdir().unwrap();
    let all = folder(dir.path(), 10, 2);
    assert!(all.newest().unwrap().found.is_none() && all.clean().is_ok());
    all.save(&checkpoint(10)).unwrap();
    fs::create_dir(all.path().join(".step-000020.partial")).unwrap();
    fs::create_dir(all.path().join("step-000030")).unwrap();
    fs::write(all.path().join("notes.txt"), "mine").unwrap();
    let Newest { found, damaged } = all.newest().unwrap();
    assert_eq!((found.unwrap().checkpoint.state.epoch, damaged.len()), (10, 1));
    all.clean().unwrap();
    assert_eq!(names(&all), ["notes.txt", "step-000010"]);
    all.save(&checkpoint(30)).unwrap();
    all.save(&checkpoint(20)).unwrap();
    assert_eq!(names(&all), ["notes.txt", "step-000010", "step-000020"], "a later one is of another past");
}

#[test]
fn the_last_due_ones_and_the_newest_stay() {
    let dir = tempfile::tempdir().unwrap();
    let all = folder(dir.path(), 10, 2);
    for epoch in [7, 10, 20, 23, 30] {
        all.save(&checkpoint(epoch)).unwrap();
    }
    assert_eq!(names(&all), ["step-000020", "step-000030"]);
    all.save(&checkpoint(37)).unwrap();
    assert_eq!(names(&all), ["step-000020", "step-000030", "step-000037"]);
    all.save(&checkpoint(40)).unwrap();
    assert_eq!(names(&all), ["step-000030", "step-000040"]);
}

#[test]
fn among_equal_scores_the_lower_loss_is_reported_but_is_no_improvement() {
    let scores = |valid, valid_loss| Scores { epoch: 1, train: 0.0, valid, test: 0.0, valid_loss };
    let before = scores(80.0, 0.5);
    for (now, improves, beats) in [
        (scores(81.0, 0.9), true, true),
        (scores(80.0, 0.4), false, true),
        (scores(80.0, 0.5), false, false),
        (scores(80.0, f64::NAN), false, false),
        (scores(79.0, 0.1), false, false),
    ] {
        assert_eq!(
            (now.improves_on(&before, Better::Higher), now.beats(&before, Better::Higher)),
            (improves, beats),
            "{now:?}"
        );
    }
    for better in [Better::Higher, Better::Lower] {
        assert!(scores(1.0, 1.0).improves_on(&scores(f64::NAN, 1.0), better), "anything is better than nothing");
        assert!(!scores(f64::NAN, 1.0).beats(&scores(1.0, 1.0), better), "and nothing is not");
    }
    assert!(scores(0.5, 2.0).improves_on(&scores(1.0, 1.0), Better::Lower), "a lower error");
    assert!(!scores(1.0, 0.5).improves_on(&scores(0.5, 1.0), Better::Lower));
    assert!(scores(1.0, 0.5).beats(&scores(1.0, 1.0), Better::Lower), "the loss decides among equal errors");
}
