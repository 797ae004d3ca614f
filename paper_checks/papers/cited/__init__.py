"""What the sources cite: Admin, Fixup, Xiong et al., a file each."""
