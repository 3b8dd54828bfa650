# nix run github:dcd-project/dcd -- --help, or `packages.default` in a configuration of NixOS. Written for nixpkgs with Rust 1.95;
# not run where dcd is developed, which has no Nix (docs/releasing.md).
{
  description = "Disk caching disk: a small fast log in front of a slow disk";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" ];
      each = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
    in
    {
      packages = each (pkgs: {
        default = pkgs.rustPlatform.buildRustPackage {
          pname = "dcd";
          version = "0.1.0";
          src = self;
          cargoLock.lockFile = ./Cargo.lock;
          cargoBuildFlags = [ "--package" "dcd-cache" "--no-default-features" "--features" "ublk" ];
          # They want disks, mounts and half an hour: `make test`.
          doCheck = false;
          # Program, manual pages, completions, units and rules in one go, with the paths of the store in them.
          installPhase = ''
            runHook preInstall
            patchShebangs scripts
            program=$(find target -path '*/release/dcd' -type f | head -n 1)
            PREFIX=$out scripts/install-files "$program" ""
            runHook postInstall
          '';
          meta = {
            description = "Disk caching disk: a small fast log in front of a slow disk";
            homepage = "https://github.com/dcd-project/dcd";
            license = with pkgs.lib.licenses; [ mit asl20 ];
            platforms = systems;
            mainProgram = "dcd";
          };
        };
      });

      nixosModules.default = { pkgs, ... }:
        let dcd = self.packages.${pkgs.stdenv.hostPlatform.system}.default;
        in {
          environment.systemPackages = [ dcd ];
          systemd.packages = [ dcd ];
          services.udev.packages = [ dcd ];
          users.users.dcd = { isSystemUser = true; group = "dcd"; };
          users.groups.dcd = { };
        };
    };
}
