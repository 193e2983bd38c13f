# The formula for Homebrew, of which `packaging/formula` fills in the version and the sums of the archives.
class Brickscope < Formula
  desc "Profiler of LLM inference: where the time goes, brick by brick"
  homepage "https://github.com/brickscope/brickscope"
  version "VERSION"
  license any_of: ["MIT", "Apache-2.0"]

  on_macos do
    on_arm do
      url "https://github.com/brickscope/brickscope/releases/download/vVERSION/brickscope-VERSION-aarch64-apple-darwin.tar.gz"
      sha256 "SHA256"
    end
    on_intel do
      url "https://github.com/brickscope/brickscope/releases/download/vVERSION/brickscope-VERSION-x86_64-apple-darwin.tar.gz"
      sha256 "SHA256"
    end
  end

  on_linux do
    on_arm do
      url "https://github.com/brickscope/brickscope/releases/download/vVERSION/brickscope-VERSION-aarch64-unknown-linux-musl.tar.gz"
      sha256 "SHA256"
    end
    on_intel do
      url "https://github.com/brickscope/brickscope/releases/download/vVERSION/brickscope-VERSION-x86_64-unknown-linux-musl.tar.gz"
      sha256 "SHA256"
    end
  end

  def install
    bin.install "brickscope"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/brickscope.bash" => "brickscope"
    zsh_completion.install "completions/brickscope.zsh" => "_brickscope"
    fish_completion.install "completions/brickscope.fish"
  end

  test do
    assert_equal "brickscope #{version}", shell_output("#{bin}/brickscope --version").strip
  end
end
