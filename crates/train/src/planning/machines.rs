//! How many ranks share a machine, where `halo:machines` asks for that and does not say it.

use graphweft_comm::Launcher;
use graphweft_parallel::{Strategy, settings::Cover};
use graphweft_plan::Profile;

use crate::config::ParallelConfig;
use crate::error::{Error, Result};

/// The strategy with that number: what a launcher that has started several processes says, or else the profile.
///
/// # Errors
/// If neither says so.
pub(crate) fn known(strategy: Strategy, config: &ParallelConfig, profile: Option<&Profile>) -> Result<Strategy> {
    if strategy != Strategy::Halo(Cover::Machines { ranks: None }) {
        return Ok(strategy);
    }
    let launched = Launcher::of_this_process().filter(|told| told.ranks > 1).and_then(|told| told.local_ranks);
    let ranks = match (launched, profile, &config.profile) {
        (Some(ranks), ..) => Some(ranks),
        (None, Some(profile), _) => Some(profile.network.ranks_per_node).filter(|ranks| *ranks > 1),
        (None, None, Some(name)) => Some(Profile::find(name)?.network.ranks_per_node),
        (None, None, None) => None,
    };
    let problem = || {
        let problem = "nothing says how many ranks share a machine";
        let remedy = "write it, as in halo:machines:8, or name a profile with ranks_per_node as parallel.profile";
        Error::setting("parallel.strategy", problem, remedy)
    };
    ranks.map(|ranks| Cover::Machines { ranks: Some(ranks) }.into()).ok_or_else(problem)
}

/// What is worth trying where a profile knows machines of several ranks.
pub(crate) fn candidate(ranks: usize, profile: &Profile) -> Option<Strategy> {
    let each = profile.network.ranks_per_node;
    (1 < each && each < ranks).then(|| Cover::Machines { ranks: Some(each) }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_says_it_or_the_user_does() {
        let asked: Strategy = "halo:machines".parse().unwrap();
        let name = |profile: &str| ParallelConfig { profile: Some(profile.into()), ..ParallelConfig::default() };
        let found = |config: &ParallelConfig| known(asked, config, None);
        assert_eq!(found(&name("2x4-gpu-100g")).unwrap().to_string(), "halo:machines:4");
        let problem = found(&ParallelConfig::default()).unwrap_err().to_string();
        assert!(problem.contains("parallel.strategy") && problem.contains("halo:machines:8"), "{problem}");
        let given: Strategy = "halo:machines:3".parse().unwrap();
        assert_eq!(known(given, &name("2x4-gpu-100g"), None).unwrap(), given);
        let profile = Profile::find("2x4-gpu-100g").unwrap();
        assert_eq!(known(asked, &ParallelConfig::default(), Some(&profile)).unwrap().to_string(), "halo:machines:4");
        assert_eq!(candidate(8, &profile).unwrap().to_string(), "halo:machines:4");
        assert_eq!(candidate(4, &profile), None, "one machine");
        assert_eq!(candidate(8, &Profile::find("16-cpu-10g").unwrap()), None, "a rank a machine");
    }
}
