//! The name of this CPU's model.

/// The name as the CPU itself tells it; "unknown" where it does not.
#[cfg(target_arch = "x86_64")]
pub fn name() -> String {
    use std::arch::x86_64::__cpuid;

    // Three leaves with 16 letters each, filled up with zeros (Intel SDM, volume 2, CPUID).
    const FIRST: u32 = 0x8000_0002;
    const LAST: u32 = 0x8000_0004;
    if __cpuid(0x8000_0000).eax < LAST {
        return "unknown".to_owned();
    }
    let leaves = (FIRST..=LAST).map(__cpuid);
    let letters = leaves.flat_map(|leaf| [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx]).flat_map(u32::to_le_bytes);
    let name: String = letters.take_while(|&letter| letter != 0).map(char::from).collect();
    name.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(not(target_arch = "x86_64"))]
pub fn name() -> String {
    "unknown".to_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_name_is_the_one_that_the_system_shows() {
        let shown = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let shown = shown.lines().find_map(|line| line.strip_prefix("model name"));
        let name = super::name();
        assert!(!name.is_empty());
        if let Some((_, shown)) = shown.and_then(|line| line.split_once(':')) {
            assert_eq!(name, shown.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
}
