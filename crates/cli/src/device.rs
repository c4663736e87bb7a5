//! `--device`: where a verb computes.

use graphweft::Device;

#[derive(clap::Args)]
pub(crate) struct Choice {
    /// Where to compute: cpu, cuda, or cuda:1 for the second GPU [default: cuda where a GPU is found, else cpu]
    #[arg(long, value_name = "cpu|cuda[:i]")]
    device: Option<Device>,
}

impl Choice {
    /// The one that was named, or the best.
    pub(crate) fn device(&self) -> Device {
        self.device.unwrap_or_default()
    }
}
